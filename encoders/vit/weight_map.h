#pragma once
// External names of a ViT's weights.
#include <vector>

#include "core/model/component_spec.h"

namespace loom::vit {

std::vector<WeightRule> weight_rules();

}  // namespace loom::vit
