#pragma once
// ConfigValue to YAML, for the resolved recipe: reading it back gives an equal tree, to the last bit of every number.
#include <string>

#include "core/config/config_value.h"

namespace loom {

// Block style with two spaces; lists of scalars on one line. Ends with a newline.
std::string write_yaml(const ConfigValue& value);

}  // namespace loom
