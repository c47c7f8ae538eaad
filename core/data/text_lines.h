#pragma once
// A text file of many samples, read one at a time. Where each lies is found once, at the start, and costs 16 bytes per
// sample; the file itself is read with pread, so threads do not wait for one another and a file that is cut off while a
// run goes on is an error of one sample, not a signal.
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/text_scanner.h"

namespace loom {

class TextLines {
 public:
  // UserError when the file is missing or of another kind; `where` stands before the path.
  explicit TextLines(std::string path, const std::string& where = "");
  ~TextLines();
  TextLines(const TextLines&) = delete;
  TextLines& operator=(const TextLines&) = delete;

  int64_t size() const { return static_cast<int64_t>(ranges_.size()); }
  int64_t line(int64_t index) const { return ranges_[static_cast<size_t>(index)].line; }
  std::string read(int64_t index) const;  // any thread; UserError when the file is no longer what it was

 private:
  void scan();

  std::string path_;
  int descriptor_ = -1;
  std::vector<TextRange> ranges_;
};

}  // namespace loom
