// One pass of an encoder and its connector: forward for all microbatches that it serves, their embeddings sent off to
// the backbone's ranks; and backward, once the last of these microbatches has handed its gradients in.
#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/comm/communicator.h"
#include "core/model/model_pass.h"

namespace loom {

size_t MultimodalModel::Branch::landing(size_t microbatch) const {
  const auto found = std::find_if(batch.landings.begin(), batch.landings.end(),
                                  [&](const Landing& landing) { return landing.microbatch == microbatch; });
  LOOM_CHECK(found != batch.landings.end(), "pass ", batch.pass, " of encoders.", batch.modality,
             " has nothing for microbatch ", microbatch);
  return static_cast<size_t>(found - batch.landings.begin());
}

MultimodalModel::Branch& MultimodalModel::encode(OpenPasses& open, const EncoderBatch& items, TapeContext context) {
  const std::string& modality = items.modality;
  const auto [place, fresh] = open.branches.try_emplace({modality, items.pass});
  LOOM_CHECK(fresh, "pass ", items.pass, " of encoders.", modality, " is run twice");
  Branch& branch = place->second;
  branch.batch = items;
  BoundComponent& encoder = *parts_.encoders.at(modality);
  context.partitions = &branch.batch.encoder;
  context.groups = &branch.batch.encoder_groups;
  context.cache = nullptr;
  context.inputs_need_grad = false;
  branch.encoder = std::make_unique<Tape>(encoder, pool_, context);
  StreamMap streams{{"media", std::move(branch.batch.media)}};
  for (int unit = 0; unit < encoder.units(); ++unit) branch.encoder->forward(unit, streams);

  BoundComponent& connector = *parts_.connectors.at(modality);
  context.partitions = &branch.batch.connector;
  context.groups = &branch.batch.connector_groups;
  context.inputs_need_grad = encoder.trainable();
  branch.connector = std::make_unique<Tape>(connector, pool_, context);
  StreamMap joined;
  for (const StreamDecl& input : external_inputs(connector)) {
    const auto found = streams.find(input.name);
    if (found == streams.end()) {
      if (input.optional) continue;
      throw PluginError(concat("connectors.", modality, " (", connector.options().origin, ") reads stream '",
                               input.name, "', which encoders.", modality, " does not write"));
    }
    branch.encoder_rows[input.name] = found->second.size(0);
    joined[input.name] = MovingRows(comm(), concat("bridge: encoders.", modality, " ", input.name),
                                    branch.batch.to_connector, found->second)
                             .take();
  }
  for (int unit = 0; unit < connector.units(); ++unit) branch.connector->forward(unit, joined);
  branch.need_grad = encoder.trainable() || connector.trainable();
  for (const Landing& landing : branch.batch.landings) {
    std::map<size_t, MovingRows>& moving = branch.embeddings.emplace_back();
    const std::vector<BridgeTarget>& targets = targets_.at(modality);
    for (size_t t = 0; t < targets.size(); ++t) {
      const Tensor& all = joined.at(targets[t].embeddings);
      const bool some = landing.rows < all.size(0);
      moving.emplace(t, MovingRows(comm(), concat("bridge: connectors.", modality, " ", targets[t].embeddings),
                                   landing.to_backbone, some ? all.narrow(0, landing.begin, landing.rows) : all));
    }
  }
  branch.gradients.resize(branch.embeddings.size());
  return branch;
}

void MultimodalModel::encode_backward(Branch& branch) {
  if (!branch.need_grad) return;
  const std::string& modality = branch.batch.modality;
  BoundComponent& connector = *parts_.connectors.at(modality);
  const std::vector<BridgeTarget>& targets = targets_.at(modality);
  StreamMap inner;
  std::map<std::string, std::vector<Tensor>> parts;  // by stream, then by landing
  for (std::map<size_t, MovingRows>& moving : branch.gradients) {
    LOOM_CHECK(moving.size() == targets.size(), "gradients of ", moving.size(), " of ", targets.size(), " targets");
    std::map<std::string, Tensor> sums;
    for (auto target = moving.rbegin(); target != moving.rend(); ++target) {
      const Tensor rows = target->second.take();
      Tensor& sum = sums[targets[target->first].embeddings];
      sum = sum.defined() ? sum + rows : rows;
    }
    for (auto& [stream, sum] : sums) parts[stream].push_back(std::move(sum));
  }
  branch.gradients.clear();
  for (const auto& [stream, rows] : parts) inner[stream] = rows.size() == 1 ? rows.front() : at::cat(rows);
  parts.clear();
  for (int unit = connector.units() - 1; unit >= 0; --unit) branch.connector->backward(unit, inner);
  BoundComponent& encoder = *parts_.encoders.at(modality);
  if (!encoder.trainable()) return;
  StreamMap outer;
  for (const auto& [name, rows] : branch.encoder_rows) {
    const auto found = inner.find(name);
    const Tensor gradient = found != inner.end() ? found->second
                                                 : zero_rows(branch.batch.connector.at("").rows(),
                                                             input_of(connector, name)->width, connector);
    outer[name] = MovingRows::back(comm(), concat("bridge: encoders.", modality, " ", name, " gradient"),
                                   branch.batch.to_connector, gradient, rows)
                      .take();
  }
  for (int unit = encoder.units() - 1; unit >= 0; --unit) branch.encoder->backward(unit, outer);
}

}  // namespace loom
