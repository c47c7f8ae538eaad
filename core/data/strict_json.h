#pragma once
// JSON from a file of somebody else: one-line errors with a position, no key twice, no endless nesting.
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace loom {

// UserError "name:line:column: ...".
nlohmann::json parse_strict_json(std::string_view bytes, const std::string& name);
// A value for a message: as JSON, on one line, shortened.
std::string shown_json(const nlohmann::json& value);

}  // namespace loom
