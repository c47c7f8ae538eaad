#pragma once
// Components from a validated recipe: declare, bind, initialise.
#include <memory>

#include "core/model/multimodal_model.h"
#include "pipelines/recipe.h"

namespace loom {

// `vocab` is what the tokenizer needs. Weights are initialised from train.seed.
std::unique_ptr<MultimodalModel> build_model(const Recipe& recipe, int64_t vocab, const PluginLoader& plugins);

}  // namespace loom
