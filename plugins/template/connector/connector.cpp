#include "connector.h"

#include <ATen/ATen.h>

namespace new_plugin {

// One unit: "features" [outputs, in_width] -> "embeddings" [slots, out_width]; the partition "slots" counts the latter.
NewPluginConnector::NewPluginConnector(const Config& config, int64_t in_width, int64_t out_width,
                                       const loom::Declarer& d)
    : config_(config) {
  const loom::Declarer unit = d.unit({.name = "project",
                                      .inputs = {{"features", in_width}},
                                      .outputs = {{"embeddings", out_width, "slots"}},
                                      .mixes = config.merge > 1 ? loom::Mixes::whole : loom::Mixes::none});
  mlp_.emplace_back(
      unit.child("mlp"),
      loom::GeluMlpOptions{
          .in = in_width * config.merge, .hidden = config.hidden, .out = out_width, .partition = "slots"});
}

// Rows of one item are neighbours and their number divides by merge(): the core sees to both.
void NewPluginConnector::run(int, loom::Streams& s, loom::UnitContext& ctx) {
  const loom::Tensor& x_TI = s["features"];
  s.set("embeddings", mlp_.front()(x_TI.reshape({-1, x_TI.size(1) * config_.merge}), ctx));
}

}  // namespace new_plugin
