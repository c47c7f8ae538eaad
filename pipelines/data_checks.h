#pragma once
// What the recipe's data and model must agree on. All of it is about `data` after its sources were validated; mistakes
// name the place in the recipe.
#include "core/config/config_value.h"
#include "core/config/schema.h"

namespace loom {

// Sources whose `modality` names no encoder, and encoders that no source of data.train feeds: they would be computed
// with, saved and shared between ranks, and never learn. `model` is the recipe's section.
void check_feeding(const ConfigValue& data, const ConfigValue& model, Mistakes& mistakes);

}  // namespace loom
