// Checks on the raw text, each with the position of the cause rather than of the place where a parser stumbles later.
#include "core/config/yaml_source.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

std::string without_carriage_returns(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out;
}

std::size_t leading_spaces(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

// Does a block scalar ("key: |", "- >-") begin at the end of this line?
bool opens_block_scalar(std::string_view line) {
  std::size_t comment = line.find(" #");
  std::string_view rest = trim(line.substr(0, comment));
  while (!rest.empty() && (rest.back() == '+' || rest.back() == '-' || (rest.back() >= '1' && rest.back() <= '9'))) {
    rest.remove_suffix(1);
  }
  if (rest.empty() || (rest.back() != '|' && rest.back() != '>')) return false;
  return rest.size() == 1 || rest[rest.size() - 2] == ' ';
}

}  // namespace

YamlSource::YamlSource(const std::string& text, std::string name)
    : text_(without_carriage_returns(text)), name_(std::move(name)) {
  line_starts_.push_back(0);
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  check_encoding();
  check_tabs();
}

Mark YamlSource::mark_at(std::size_t offset) const {
  offset = std::min(offset, text_.size());
  std::size_t line = static_cast<std::size_t>(std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) -
                                              line_starts_.begin());
  std::size_t start = line_starts_[line - 1];
  std::size_t column = utf8_columns(std::string_view(text_).substr(start, offset - start));
  return {name_, static_cast<int>(line), static_cast<int>(column) + 1};
}

std::string_view YamlSource::line(int number) const {
  if (number < 1 || static_cast<std::size_t>(number) > line_starts_.size()) return {};
  std::size_t start = line_starts_[static_cast<std::size_t>(number) - 1];
  return std::string_view(text_).substr(start, text_.find('\n', start) - start);
}

void YamlSource::fail(std::size_t offset, const std::string& what) const {
  throw UserError(concat(mark_at(offset).str(), ": ", what));
}

void YamlSource::check_encoding() const {
  std::size_t zero = text_.find('\0');
  if (zero == std::string::npos && valid_utf8(text_)) return;
  for (std::size_t i = 0; i < line_starts_.size(); ++i) {
    std::string_view one = line(static_cast<int>(i) + 1);
    if (one.find('\0') == std::string_view::npos && valid_utf8(one)) continue;
    throw UserError(concat(name_, ":", i + 1, ": not UTF-8 text; expected a YAML file"));
  }
}

// Tabs of empty and comment lines, which do no harm, become spaces: yaml-cpp stumbles over them.
void YamlSource::check_tabs() {
  bool in_block = false;
  std::size_t block_indent = 0;
  for (std::size_t i = 0; i < line_starts_.size(); ++i) {
    std::string_view one = line(static_cast<int>(i) + 1);
    std::string_view content = trim(one);
    std::size_t spaces = leading_spaces(one);
    if (in_block && (content.empty() || spaces > block_indent)) continue;
    if (content.empty() || content[0] == '#') {
      std::size_t length = content.empty() ? one.size() : one.find('#');
      std::fill_n(text_.begin() + static_cast<std::ptrdiff_t>(line_starts_[i]), length, ' ');
      continue;
    }
    in_block = false;
    if (one[spaces] == '\t') fail(line_starts_[i] + spaces, "a tab in the indentation; YAML is indented with spaces");
    if (opens_block_scalar(one)) {
      in_block = true;
      block_indent = spaces;
    }
  }
}

std::size_t YamlSource::end_of_quote(std::size_t offset) const {
  char quote = text_[offset];
  for (std::size_t i = offset + 1; i < text_.size(); ++i) {
    if (quote == '"' && text_[i] == '\\') {
      ++i;
    } else if (text_[i] == quote) {
      if (quote == '"' || i + 1 == text_.size() || text_[i + 1] != '\'') return i;
      ++i;
    }
  }
  return std::string::npos;
}

void YamlSource::check_bracket(std::size_t offset) const {
  int depth = 0;
  char before = ' ';  // the last character that is no blank
  for (std::size_t i = offset; i < text_.size(); ++i) {
    char c = text_[i];
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && --depth == 0) return;
    if (c == '#' && (text_[i - 1] == ' ' || text_[i - 1] == '\n')) {
      i = text_.find('\n', i);
    } else if ((c == '\'' || c == '"') && std::string_view("[{,:").find(before) != std::string_view::npos) {
      std::size_t end = end_of_quote(i);
      if (end == std::string::npos) return;  // the quote is the mistake
      i = end;
    }
    if (c != ' ' && c != '\n') before = c;
  }
  fail(offset, concat("this '", text_[offset], "' is never closed"));
}

void YamlSource::check_closed(std::size_t offset) const {
  if (offset >= text_.size()) return;
  char c = text_[offset];
  if (c == '[' || c == '{') check_bracket(offset);
  if ((c == '\'' || c == '"') && end_of_quote(offset) == std::string::npos) fail(offset, "this quote is never closed");
}

}  // namespace loom
