#pragma once
// Recipe values from the command line: "train.lr=1e-3", "--train.lr=1e-3", "--train.lr 1e-3", list items
// "data.train.0.path=x".
#include <functional>
#include <string>
#include <vector>

#include "core/config/config_value.h"

namespace loom {

// Applies the overrides in order. New keys are made (the schema judges them later); a list item must exist. Values are
// read as in YAML: numbers, true, [1, 2], {a: b}, 'text'. Their marks say "command line". `after_each` may change the
// tree between an override and the next one.
void apply_overrides(ConfigValue& root, const std::vector<std::string>& args,
                     const std::function<void(ConfigValue& root)>& after_each = {});

}  // namespace loom
