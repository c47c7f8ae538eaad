#pragma once
// Answers and skips for other programs: one JSON object per line, written as they come.
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace loom {

class JsonLines {
 public:
  using Line = nlohmann::ordered_json;

  // Replaces the file, whose folder is made; "" is stdout. EnvironmentError when it cannot be written.
  explicit JsonLines(std::string path);
  // Bytes of text that are no UTF-8 become U+FFFD.
  void write(const Line& line);
  void flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::FILE* file() const { return own_ != nullptr ? own_.get() : stdout; }
  [[noreturn]] void fail() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> own_;
};

// The last `count` complete lines of a file's text, the oldest first.
std::vector<std::string_view> last_lines(std::string_view text, size_t count);

}  // namespace loom
