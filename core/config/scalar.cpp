// Hand-written matching instead of regular expressions: this runs for every word of a recipe, and the rules are ten
// lines.
#include "core/config/scalar.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/base/text.h"

namespace loom {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

// Takes digits with single underscores between them; false when there is none.
bool take_digits(std::string_view& rest, std::string& out) {
  bool any = false;
  while (!rest.empty()) {
    if (is_digit(rest[0])) {
      out += rest[0];
      any = true;
    } else if (!(rest[0] == '_' && any && rest.size() > 1 && is_digit(rest[1]))) {
      break;
    }
    rest.remove_prefix(1);
  }
  return any;
}

std::optional<int64_t> parse_integer(const std::string& digits, int base) {
  int64_t value = 0;
  std::from_chars_result end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<ConfigValue> parse_number(std::string_view text) {
  std::string_view rest = text;
  std::string clean;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    if (rest[0] == '-') clean = "-";
    rest.remove_prefix(1);
  }
  bool negative = !clean.empty();
  if (one_of(rest, {".inf", ".Inf", ".INF"})) {
    double infinity = std::numeric_limits<double>::infinity();
    return ConfigValue::number(negative ? -infinity : infinity);
  }
  if (one_of(text, {".nan", ".NaN", ".NAN"})) return ConfigValue::number(std::numeric_limits<double>::quiet_NaN());
  if (rest.size() > 2 && rest[0] == '0' && (rest[1] == 'x' || rest[1] == 'o')) {
    std::string digits(rest.substr(2));
    if (digits[0] == '-' || digits[0] == '+') return std::nullopt;
    std::optional<int64_t> value = parse_integer(clean + digits, rest[1] == 'x' ? 16 : 8);
    return value ? std::optional(ConfigValue::integer(*value)) : std::nullopt;
  }
  bool leading_zero = rest.size() > 1 && rest[0] == '0' && (is_digit(rest[1]) || rest[1] == '_');
  if (leading_zero) return std::nullopt;  // 007 is a name, not a number
  bool whole = take_digits(rest, clean);
  bool fraction = false, point = false;
  if (!rest.empty() && rest[0] == '.') {
    point = true;
    clean += '.';
    rest.remove_prefix(1);
    fraction = take_digits(rest, clean);
  }
  if (!whole && !fraction) return std::nullopt;
  if (rest.empty() && !point) {
    std::optional<int64_t> value = parse_integer(clean, 10);
    if (value) return ConfigValue::integer(*value);
  }
  if (!rest.empty()) {
    if (rest[0] != 'e' && rest[0] != 'E') return std::nullopt;
    clean += 'e';
    rest.remove_prefix(1);
    if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
      clean += rest[0];
      rest.remove_prefix(1);
    }
    if (!take_digits(rest, clean) || !rest.empty()) return std::nullopt;
  }
  double value = 0;
  std::from_chars_result end = std::from_chars(clean.data(), clean.data() + clean.size(), value);
  if (end.ec == std::errc::result_out_of_range) value = std::strtod(clean.c_str(), nullptr);
  return ConfigValue::number(value);
}

// The text between "${" and its "}", braces inside included; npos of the closing one when there is none.
std::size_t closing_brace(std::string_view text, std::size_t from) {
  int depth = 1;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::string replace_one(std::string_view inside, std::vector<std::string>& problems) {
  std::size_t comma = inside.find(',');
  std::string name(trim(inside.substr(0, comma)));
  bool good = !name.empty() && !is_digit(name[0]);
  for (char c : name) good = good && is_name(c);
  if (!good) {
    problems.push_back("'${" + std::string(inside) +
                       "}' names no environment variable; expected ${VAR} or ${VAR,default}");
    return "";
  }
  const char* value = std::getenv(name.c_str());
  if (value != nullptr) return value;
  if (comma == std::string_view::npos) {
    problems.push_back("environment variable " + name + " is not set; set it or give a default, ${" + name +
                       ",default}");
    return "";
  }
  return interpolate(inside.substr(comma + 1), problems).text;
}

}  // namespace

ConfigValue resolve_scalar(const std::string& text) {
  if (one_of(text, {"", "~", "null", "Null", "NULL"})) return ConfigValue();
  bool yes = one_of(text, {"true", "True", "TRUE"});
  if (yes || one_of(text, {"false", "False", "FALSE"})) {
    ConfigValue value = ConfigValue::boolean(yes);
    value.set_written(text);
    return value;
  }
  std::optional<ConfigValue> number = parse_number(text);
  if (!number) return ConfigValue::string(text);
  number->set_written(text);
  return *number;
}

Interpolated interpolate(std::string_view text, std::vector<std::string>& problems) {
  Interpolated result;
  for (std::size_t i = 0; i < text.size();) {
    std::string_view rest = text.substr(i);
    if (rest.starts_with("$${")) {
      result.text += "${";
      i += 3;
    } else if (rest.starts_with("${")) {
      std::size_t end = closing_brace(text, i + 2);
      if (end == std::string_view::npos) {
        problems.emplace_back("'${' without its '}'");
        return result;
      }
      result.text += replace_one(text.substr(i + 2, end - i - 2), problems);
      result.whole = i == 0 && end + 1 == text.size();
      i = end + 1;
    } else {
      result.text += text[i++];
    }
  }
  return result;
}

}  // namespace loom
