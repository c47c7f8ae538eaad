#pragma once
// The text of a YAML file with what a parser does not check: encoding, tabs, quotes that are never closed. Turns byte
// offsets into positions that an editor shows (columns count characters).
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_value.h"

namespace loom {

class YamlSource {
 public:
  // Drops a byte order mark and carriage returns, ends the last line. UserError when the bytes are not text, or when a
  // tab indents a line.
  YamlSource(const std::string& text, std::string name);

  const std::string& text() const { return text_; }
  const std::string& name() const { return name_; }
  Mark mark_at(std::size_t offset) const;
  std::string_view line(int number) const;  // from 1; empty when there is none
  // UserError "file:line:col: what".
  [[noreturn]] void fail(std::size_t offset, const std::string& what) const;
  // Fails when a quote, brace or bracket opens at offset and is never closed.
  void check_closed(std::size_t offset) const;

 private:
  std::size_t end_of_quote(std::size_t offset) const;  // npos when there is none
  void check_bracket(std::size_t offset) const;
  void check_encoding() const;
  void check_tabs();

  std::string text_;
  std::string name_;
  std::vector<std::size_t> line_starts_;
};

}  // namespace loom
