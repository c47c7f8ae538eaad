#pragma once
// Text into the words that byte-level BPE works on: the pattern of GPT-2, " ?letters| ?digits| ?others|blanks" with a
// few English endings. PCRE2 does the matching, with its just-in-time compiler where the system allows one.
#include <cstddef>
#include <memory>
#include <string_view>

namespace loom {

// Words of one text, in order; together they are the text, byte for byte. Not for several threads at once; make one per
// call. A byte that is no part of valid UTF-8 is a word of its own.
class Pretokens {
 public:
  explicit Pretokens(std::string_view text);  // must outlive the object
  ~Pretokens();
  Pretokens(const Pretokens&) = delete;
  Pretokens& operator=(const Pretokens&) = delete;

  bool next(std::string_view& word);  // false at the end

 private:
  struct Match;

  std::string_view text_;
  size_t at_ = 0;
  size_t begin_ = 0, end_ = 0;  // the run of valid UTF-8 around at_
  std::unique_ptr<Match> match_;
};

}  // namespace loom
