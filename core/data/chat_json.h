#pragma once
// JSON of a data file, and the words in which its mistakes are told.
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace loom {

using Json = nlohmann::json;

// UserError "invalid JSON near '...': why", or "invalid UTF-8 at byte N of the sample".
Json parse_sample(std::string_view text);
const Json* given(const Json& object, const char* key);  // null when absent or null
// "a text", "a list": what a message calls a value.
std::string json_kind(const Json& value);
// "; found id, mesages; did you mean 'messages'?"
std::string found_keys(const Json& object, const std::vector<std::string>& valid);

}  // namespace loom
