#pragma once
// Components from a validated recipe: declare, bind, initialise.
#include <memory>
#include <optional>

#include "core/model/multimodal_model.h"
#include "core/nn/tile_times.h"
#include "core/step/world_layout.h"
#include "pipelines/recipe.h"

namespace loom {

struct BuildOptions {
  Communicator* comm = nullptr;  // null = one rank
  WorldLayout layout{};
  c10::Device device = c10::Device(c10::DeviceType::CPU);  // Meta = tensors without memory, for a dry run
  std::optional<bool> recompute{};                         // instead of the recipe's train.recompute
  std::optional<TileTimes> tiles{};                        // of these ranks, where a layout asks for what takes least
};

// Of weights and activations in a pass, by the word of train.precision.
at::ScalarType compute_type(const std::string& precision);

// `vocab` is what the tokenizer needs. Weights are initialised from train.seed. On several ranks each builds its own
// model, whose weights are shared as the layout says.
std::unique_ptr<MultimodalModel> build_model(const Recipe& recipe, int64_t vocab, const PluginLoader& plugins,
                                             const BuildOptions& options = {});

}  // namespace loom
