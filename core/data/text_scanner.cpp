#include "core/data/text_scanner.h"

#include <limits>

#include "core/base/error.h"

namespace loom {
namespace {

constexpr uint64_t kLongest = uint64_t{1} << 30;  // bytes of a sample

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

bool starts(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

}  // namespace

void TextScanner::fail(uint64_t line, const std::string& what) const {
  throw UserError(concat(name_, ":", line, ": ", what));
}

// Drops the byte order mark and says what files of other kinds are.
void TextScanner::begin(std::string_view& chunk) {
  if (starts(chunk, "\xef\xbb\xbf")) {
    chunk.remove_prefix(3);
    offset_ = 3;
    return;
  }
  if (starts(chunk, "\xff\xfe") || starts(chunk, "\xfe\xff")) fail(1, "the text is UTF-16; expected UTF-8");
  if (starts(chunk, "\x1f\x8b")) fail(1, "the file is packed with gzip; expected plain text: unpack it first");
  if (starts(chunk, "PK\x03\x04")) fail(1, "the file is a ZIP archive; expected plain text: unpack it first");
  if (starts(chunk, "PAR1")) fail(1, "the file is in Parquet format; expected JSON lines or a JSON array");
}

void TextScanner::feed(std::string_view chunk) {
  if (offset_ == 0) begin(chunk);
  while (mode_ == Mode::undecided && !chunk.empty()) {
    const char c = chunk.front();
    if (!is_blank(c)) {
      mode_ = c == '[' ? Mode::array : Mode::lines;
      break;
    }
    line_ += c == '\n' ? 1 : 0;
    ++offset_;
    chunk.remove_prefix(1);
  }
  if (mode_ == Mode::lines) feed_lines(chunk);
  if (mode_ == Mode::array) feed_array(chunk);
  offset_ += chunk.size();
}

void TextScanner::feed_lines(std::string_view chunk) {
  size_t at = 0;
  while (at < chunk.size()) {
    const size_t end = chunk.find('\n', at);
    const size_t stop = end == std::string_view::npos ? chunk.size() : end;
    size_t from = at, to = stop;
    while (from < to && is_blank(chunk[from])) ++from;
    while (to > from && is_blank(chunk[to - 1])) --to;
    if (from < to) {
      if (!open_) {
        open_ = true;
        first_ = offset_ + from;
        first_line_ = line_;
      }
      last_ = offset_ + to;
    }
    if (end == std::string_view::npos) return;
    if (open_) add();
    ++line_;
    at = end + 1;
  }
}

void TextScanner::feed_array(std::string_view chunk) {
  for (size_t i = 0; i < chunk.size(); ++i) {
    while (in_string_ && !escaped_ && i + 1 < chunk.size() && chunk[i] != '"' && chunk[i] != '\\' && chunk[i] != '\n')
      ++i;
    array_byte(chunk[i], offset_ + i);
    line_ += chunk[i] == '\n' ? 1 : 0;
  }
}

void TextScanner::array_byte(char c, uint64_t at) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      last_ = at + 1;
    }
    return;
  }
  if (is_blank(c)) return;
  if (closed_) fail(line_, "text after the end of the array; expected one array, or one sample per line");
  if (!entered_) {
    entered_ = true;  // the outer bracket
    return;
  }
  if (depth_ == 0 && (c == ',' || c == ']')) {
    const bool empty = c == ']' && ranges_.empty() && !after_comma_;
    if (!open_ && !empty) fail(line_, concat("expected a sample before '", c, "'"));
    if (open_) add();
    after_comma_ = c == ',';
    closed_ = c == ']';
    return;
  }
  if (!open_) {
    open_ = true;
    first_ = at;
    first_line_ = line_;
  }
  last_ = at + 1;
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  if (depth_ < 0) fail(line_, concat("'", c, "' closes what was never opened"));
}

void TextScanner::add() {
  if (last_ - first_ > kLongest) fail(first_line_, "a sample of more than 1 GB; expected one sample per line");
  if (first_line_ > std::numeric_limits<uint32_t>::max()) fail(first_line_, "too many lines in one file");
  ranges_.push_back({first_, static_cast<uint32_t>(last_ - first_), static_cast<uint32_t>(first_line_)});
  open_ = false;
}

std::vector<TextRange> TextScanner::finish() {
  if (mode_ == Mode::array && !closed_) {
    if (depth_ > 0 || in_string_) fail(first_line_, "the sample that begins here is never closed");
    fail(line_, "the array is never closed; expected ']' at its end");
  }
  if (open_) add();
  ranges_.shrink_to_fit();
  return std::move(ranges_);
}

}  // namespace loom
