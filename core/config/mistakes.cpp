// Collects a file's mistakes in the order of their positions.
#include <charconv>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/schema.h"

namespace loom {
namespace {

// Positions in files come first, in order; what has none (command line, defaults) follows.
bool before(const Mark& a, const Mark& b) {
  if ((a.line == 0) != (b.line == 0)) return b.line == 0;
  if (a.line == 0) return false;
  if (a.file != b.file) return a.file < b.file;
  return a.line != b.line ? a.line < b.line : a.column < b.column;
}

bool take_number(std::string_view text, std::size_t& at, int& value) {
  std::from_chars_result end = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr == text.data() + text.size() || *end.ptr != ':') return false;
  at = static_cast<std::size_t>(end.ptr - text.data()) + 1;
  return true;
}

// "bad.yaml:6:3: ..." or "bad.yaml:6: ...".
Mark mark_of_line(std::string_view line) {
  for (std::size_t colon = line.find(':'); colon != std::string_view::npos; colon = line.find(':', colon + 1)) {
    Mark mark;
    std::size_t at = colon + 1;
    if (!take_number(line, at, mark.line)) continue;
    if (!take_number(line, at, mark.column)) mark.column = 0;
    mark.file = line.substr(0, colon);
    return mark;
  }
  return {};
}

}  // namespace

void Mistakes::insert(const Mark& mark, std::string line) {
  std::size_t at = lines_.size();
  while (at > 0 && before(mark, marks_[at - 1])) --at;
  lines_.insert(lines_.begin() + static_cast<std::ptrdiff_t>(at), std::move(line));
  marks_.insert(marks_.begin() + static_cast<std::ptrdiff_t>(at), mark);
}

void Mistakes::add(const Mark& mark, const std::string& path, const std::string& what) {
  std::string line = mark.str();
  if (!line.empty()) line += ": ";
  if (!path.empty()) line += path + ": ";
  insert(mark, line + what);
}

void Mistakes::add_line(std::string whole_line) {
  Mark mark = mark_of_line(whole_line);
  insert(mark, std::move(whole_line));
}

void Mistakes::throw_if_any(const std::string& file) const {
  if (lines_.empty()) return;
  throw UserError(concat(join(lines_, "\n"), "\n", lines_.size(), lines_.size() == 1 ? " mistake" : " mistakes", " in ",
                         file, "; nothing was started."));
}

}  // namespace loom
