#pragma once
// Finds the samples of a text file without parsing them: the lines of JSON lines, or the elements of one JSON array.
// The first character decides, so a file may be called .jsonl and hold an array. A byte order mark, CRLF and blank
// lines are no part of any sample. Fed in chunks, so the size of a file costs no memory.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace loom {

struct TextRange {
  uint64_t begin = 0;   // byte of the file
  uint32_t length = 0;  // without blanks around it
  uint32_t line = 0;    // of its first byte, from 1
};

class TextScanner {
 public:
  explicit TextScanner(std::string name) : name_(std::move(name)) {}  // "doors.jsonl", for messages

  // The first chunk has at least 4 bytes, or is all there is. UserError "name:line: ..." when the text is of another
  // kind or an array is broken between its elements.
  void feed(std::string_view chunk);
  std::vector<TextRange> finish();
  bool is_array() const { return mode_ == Mode::array; }

 private:
  enum class Mode { undecided = 1, lines, array };

  void begin(std::string_view& chunk);
  void feed_lines(std::string_view chunk);
  void feed_array(std::string_view chunk);
  void array_byte(char c, uint64_t at);
  void add();
  [[noreturn]] void fail(uint64_t line, const std::string& what) const;

  std::string name_;
  Mode mode_ = Mode::undecided;
  std::vector<TextRange> ranges_;
  uint64_t offset_ = 0;  // of the next byte
  uint64_t line_ = 1;
  bool open_ = false;  // a sample has begun
  uint64_t first_ = 0, last_ = 0, first_line_ = 0;
  // of an array
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, after_comma_ = false, entered_ = false, closed_ = false;
};

}  // namespace loom
