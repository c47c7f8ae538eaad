#pragma once
// Components from a validated recipe: declare, bind, initialise.
#include <memory>

#include "core/model/multimodal_model.h"
#include "core/step/world_layout.h"
#include "pipelines/recipe.h"

namespace loom {

// `vocab` is what the tokenizer needs. Weights are initialised from train.seed. On several ranks each builds its own
// model, whose weights are shared as the layout says; `comm` is null for one rank.
std::unique_ptr<MultimodalModel> build_model(const Recipe& recipe, int64_t vocab, const PluginLoader& plugins,
                                             Communicator* comm = nullptr, const WorldLayout& layout = {});

}  // namespace loom
