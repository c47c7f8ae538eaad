// nlohmann-json keeps the last of equal keys and accepts any depth; its parser tells of every key, and that is used
// here.
#include "core/data/strict_json.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;

std::string position(std::string_view bytes, size_t at) {
  at = std::min(at, bytes.size());
  const std::string_view before = bytes.substr(0, at);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return concat(line, ":", at - start + 1);
}

}  // namespace

Json parse_strict_json(std::string_view bytes, const std::string& name) {
  std::vector<std::unordered_set<std::string>> keys;  // of the objects around the present place
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    LOOM_CHECK_USER(depth < kMaxDepth, name, ": more than ", kMaxDepth, " lists or objects inside each other");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      LOOM_CHECK_USER(keys.back().insert(parsed.get<std::string>()).second, name, ": key ",
                      quote_text(parsed.get<std::string>()), " stands twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(bytes.begin(), bytes.end(), watch);
  } catch (const Json::parse_error& error) {
    if (trim(bytes).empty()) throw UserError(name + ": is empty; expected JSON");
    throw UserError(concat(name, ":", position(bytes, error.byte == 0 ? 0 : error.byte - 1), ": is no valid JSON"));
  } catch (const Json::exception&) {  // a number that no type holds
    throw UserError(name + ": is no valid JSON");
  }
}

std::string shown_json(const Json& value) {
  if (value.is_object()) return value.empty() ? "{}" : "an object";
  if (value.is_array()) return concat("a list of ", value.size());
  const std::string quoted = quote_text(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace loom
