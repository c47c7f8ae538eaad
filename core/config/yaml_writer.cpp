// Our own emitter, a hundred lines, because the rule for quotes must be the reader's rule for plain words (scalar.h).
#include "core/config/yaml_writer.h"

#include <cstdio>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/scalar.h"

namespace loom {
namespace {

constexpr std::size_t kWidth = 110;

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '/';
}

// Only what is plain in every context, inside braces too.
bool plain_is_safe(const std::string& text) {
  if (text.empty() || !is_word(text[0]) || text.back() == ' ' || text.starts_with("..")) return false;
  for (char c : text) {
    if (!is_word(c) && std::string_view("-+@()= ").find(c) == std::string_view::npos) return false;
  }
  return resolve_scalar(text).kind() == ConfigValue::Kind::string;
}

// Keys are read literally; in values "${" would be a variable.
std::string in_quotes(const std::string& text, bool escape_variables) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    char hex[8];
    if (escape_variables && text.compare(i, 2, "${") == 0) {
      out += "$$";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      std::snprintf(hex, sizeof hex, "\\x%02x", c);
      out += hex;
    } else if (text.compare(i, 2, "\xc2\x85") == 0) {
      out += "\\u0085";  // yaml-cpp reads \N as a lone byte
      i += 1;
    } else if (text.compare(i, 3, "\xe2\x80\xa8") == 0 || text.compare(i, 3, "\xe2\x80\xa9") == 0) {
      out += static_cast<unsigned char>(text[i + 2]) == 0xa8 ? "\\u2028" : "\\u2029";
      i += 2;
    } else if (text.compare(i, 3, "\xef\xbb\xbf") == 0) {
      out += "\\ufeff";
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out + "\"";
}

std::string key_text(const std::string& key) {
  return plain_is_safe(key) && key.find('.') == std::string::npos ? key : in_quotes(key, false);
}

std::string number_text(double value) {
  std::string text = shortest_double(value);
  if (text == "nan") return ".nan";
  if (text == "inf") return ".inf";
  if (text == "-inf") return "-.inf";
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string scalar_text(const ConfigValue& value) {
  switch (value.kind()) {
    case ConfigValue::Kind::null:
      return "null";
    case ConfigValue::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case ConfigValue::Kind::integer:
      return std::to_string(value.as_int());
    case ConfigValue::Kind::number:
      return number_text(value.as_number());
    case ConfigValue::Kind::string:
      return plain_is_safe(value.as_string()) ? value.as_string() : in_quotes(value.as_string(), true);
    case ConfigValue::Kind::list:
      return "[]";
    case ConfigValue::Kind::map:
      return "{}";
  }
  return "null";
}

bool is_block(const ConfigValue& value) {
  return (value.is_map() && !value.entries().empty()) || (value.is_list() && !value.items().empty());
}

// "[a, b]" when the items are scalars and fit on one line; empty otherwise.
std::string one_line(const ConfigValue& value) {
  if (!value.is_list()) return "";
  std::vector<std::string> parts;
  for (const ConfigValue& item : value.items()) {
    if (is_block(item)) return "";
    parts.push_back(scalar_text(item));
  }
  std::string line = "[" + join(parts, ", ") + "]";
  return line.size() <= kWidth ? line : "";
}

void write_block(const ConfigValue& value, std::size_t indent, bool continues, std::string& out);

// After "key:" or "-": the value on the same line, or below.
void write_value(const ConfigValue& value, std::size_t indent, bool item, std::string& out) {
  std::string line = is_block(value) ? one_line(value) : scalar_text(value);
  if (!line.empty()) {
    out += " " + line + "\n";
  } else if (item && value.is_map()) {
    out += " ";
    write_block(value, indent, true, out);
  } else {
    out += "\n";
    write_block(value, indent, false, out);
  }
}

// continues: the first line's indentation stands already.
void write_block(const ConfigValue& value, std::size_t indent, bool continues, std::string& out) {
  std::string spaces(indent, ' ');
  if (value.is_map()) {
    for (const ConfigValue::Entry& entry : value.entries()) {
      if (!continues) out += spaces;
      continues = false;
      out += key_text(entry.first) + ":";
      write_value(entry.second, indent + 2, false, out);
    }
    return;
  }
  for (const ConfigValue& item : value.items()) {
    out += spaces + "-";
    write_value(item, indent + 2, true, out);
  }
}

}  // namespace

std::string write_yaml(const ConfigValue& value) {
  if (!is_block(value)) return scalar_text(value) + "\n";
  std::string out;
  write_block(value, 0, false, out);
  return out;
}

}  // namespace loom
