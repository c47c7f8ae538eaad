#pragma once
// External names of the weights.
#include <vector>

#include "core/model/component_spec.h"

namespace loom::llama {

std::vector<WeightRule> weight_rules();

}  // namespace loom::llama
