#pragma once
// External names of the projector's weights.
#include <vector>

#include "core/model/component_spec.h"

namespace loom::mlp {

std::vector<WeightRule> weight_rules();

}  // namespace loom::mlp
