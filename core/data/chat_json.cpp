#include "core/data/chat_json.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

// The library's own words without its position (one of text that is cut out of a file) and without the token it had
// read, which may be megabytes.
std::string why(const std::string& what) {
  std::string out = what;
  if (const size_t at = out.find("syntax error while parsing "); at != std::string::npos) {
    const size_t dash = out.find(" - ", at);
    if (dash != std::string::npos) out = out.substr(dash + 3);
  }
  if (const size_t at = out.find("; last read: "); at != std::string::npos) out.resize(at);
  return utf8_cut(out, 100);
}

// Some characters on both sides, none of them cut in two.
std::string around(std::string_view text, size_t at) {
  const auto inside = [&](size_t i) { return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
  size_t from = at > 20 ? at - 20 : 0, to = std::min(text.size(), at + 20);
  while (inside(from)) ++from;
  while (inside(to)) --to;
  return from < to ? std::string(text.substr(from, to - from)) : "";
}

// Where the first character begins that is none.
size_t first_invalid(std::string_view text) {
  size_t at = 0, length = 1;
  for (; at < text.size(); at += length) {
    length = 1;
    while (length <= 4 && !valid_utf8(text.substr(at, length))) ++length;
    if (length > 4) return at;
  }
  return at;
}

}  // namespace

Json parse_sample(std::string_view text) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& problem) {
    const size_t at = std::min(text.size(), problem.byte > 0 ? problem.byte - 1 : 0);
    const std::string reason = why(problem.what());
    if (reason.find("ill-formed UTF-8") != std::string::npos)
      throw UserError(concat("invalid UTF-8 at byte ", first_invalid(text) + 1, " of the sample"));
    const std::string near = around(text, at);
    throw UserError(concat("invalid JSON ", at >= text.size() ? "at the end of " : "near ", quote_text(near), ": ",
                           valid_utf8(reason) ? reason : "not UTF-8"));
  } catch (const Json::exception&) {
    throw UserError("invalid JSON: a number is out of range");
  }
}

const Json* given(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return concat("the text ", quote_text(value.get_ref<const std::string&>()));
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::null:
    case Json::value_t::discarded:
      return "null";
    default:
      return "a number";
  }
}

std::string found_keys(const Json& object, const std::vector<std::string>& valid) {
  constexpr size_t kShown = 6;
  if (object.empty()) return "; found no keys";
  std::vector<std::string> shown;
  std::string hint;
  for (const auto& [key, value] : object.items()) {
    if (shown.size() < kShown) shown.push_back(utf8_cut(key, 30));
    // A key that is right is no misspelling of another.
    if (hint.empty() && std::find(valid.begin(), valid.end(), key) == valid.end()) hint = did_you_mean(key, valid);
  }
  std::string keys = quote_text(join(shown, ", "));
  return concat("; found ", keys.substr(1, keys.size() - 2), object.size() > kShown ? ", ..." : "", hint);
}

}  // namespace loom
