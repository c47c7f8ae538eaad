// Forward: encoders and connectors one after another, backbone up to the bridge's unit, embeddings in, backbone to the
// head. Backward is the same list from the end. Each component has a tape of its own per microbatch.
#include "core/model/multimodal_model.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/model/bridge.h"

namespace loom {
namespace {

int64_t slab_bytes(const ModelParts& parts) {
  int64_t bytes = parts.backbone->largest_buffer_bytes();
  for (const auto& [name, part] : parts.encoders) bytes = std::max(bytes, part->largest_buffer_bytes());
  for (const auto& [name, part] : parts.connectors) bytes = std::max(bytes, part->largest_buffer_bytes());
  return bytes;
}

Tensor reordered(const Tensor& rows, const std::vector<int64_t>& permutation, bool inverse) {
  if (permutation.empty()) return rows;
  const Tensor index = at::tensor(at::ArrayRef<int64_t>(permutation), at::kLong);
  return inverse ? rows.index_select(0, index) : at::empty_like(rows).index_copy(0, index, rows);
}

void add_counters(TapeCounters& sum, const TapeCounters& more) {
  sum.units_run += more.units_run;
  sum.units_recomputed += more.units_recomputed;
  sum.units_skipped_empty += more.units_skipped_empty;
}

}  // namespace

struct MultimodalModel::Pass {
  std::map<std::string, std::unique_ptr<Tape>> encoders, connectors;
  std::unique_ptr<Tape> backbone;

  template <class Visit>
  void each(const Visit& visit) {
    for (auto& [name, tape] : encoders) visit(*tape);
    for (auto& [name, tape] : connectors) visit(*tape);
    visit(*backbone);
  }
};

MultimodalModel::MultimodalModel(ModelParts parts, uint64_t seed)
    : parts_(std::move(parts)), seed_(seed), pool_(slab_bytes(parts_)) {
  for (const auto& [modality, encoder] : parts_.encoders) {
    if (parts_.connectors.find(modality) == parts_.connectors.end()) {
      throw UserError(concat("encoders.", modality, " has no connector; add connectors.", modality));
    }
    modalities_.push_back(modality);
  }
}

Tensor MultimodalModel::run(Pass& pass, const ModelBatch& batch, TapeContext context, const char* output) {
  std::map<std::string, Tensor> embeddings;
  std::map<std::string, bool> need_grad;
  for (const auto& [modality, items] : batch.items) {
    BoundComponent& encoder = *parts_.encoders.at(modality);
    TapeContext inner = context;
    inner.partitions = &items.encoder;
    inner.cache = nullptr;
    inner.inputs_need_grad = false;
    auto& encoder_tape = pass.encoders[modality] = std::make_unique<Tape>(encoder, pool_, inner);
    StreamMap streams{{"media", items.media}};
    for (int unit = 0; unit < encoder.units(); ++unit) encoder_tape->forward(unit, streams);

    BoundComponent& connector = *parts_.connectors.at(modality);
    inner.partitions = &items.connector;
    inner.inputs_need_grad = encoder.trainable();
    auto& connector_tape = pass.connectors[modality] = std::make_unique<Tape>(connector, pool_, inner);
    StreamMap joined{{"features", reordered(streams.at("features"), items.permutation, false)}};
    for (int unit = 0; unit < connector.units(); ++unit) connector_tape->forward(unit, joined);
    embeddings[modality] = joined.at("embeddings");
    need_grad[modality] = encoder.trainable() || connector.trainable();
  }

  const BridgeTarget target = backbone().bridge_target();
  context.partitions = &batch.text;
  context.inputs_need_grad = false;
  pass.backbone = std::make_unique<Tape>(*parts_.backbone, pool_, context);
  StreamMap streams{{"tokens", batch.tokens}, {"loss_rows", batch.loss_rows}};
  if (batch.targets.defined()) streams.emplace("targets", batch.targets);
  for (int unit = 0; unit < parts_.backbone->units(); ++unit) {
    if (unit == target.unit) {
      for (const auto& [modality, rows] : embeddings) {
        Tensor& hidden = streams.at(target.stream);
        hidden = bridge_forward(hidden, batch.items.at(modality).slots, rows);
        pass.backbone->injected(target.stream, need_grad[modality]);
      }
    }
    pass.backbone->forward(unit, streams);
  }
  return streams.at(output);
}

MicrobatchResult MultimodalModel::forward_backward(const ModelBatch& batch, int64_t step,
                                                   const Denominators& denominators) {
  Pass pass;
  TapeContext context;
  context.seed = seed_;
  context.step = step;
  const Tensor logprob = run(pass, batch, context, "logprob");

  MicrobatchResult result;
  result.supervised = batch.targets.size(0);
  result.loss_sum = -logprob.to(at::kDouble).sum().item<double>();
  const auto scale = [&](Denominator d) {
    if (d == Denominator::supervised_tokens) return 1.0 / denominators.supervised_tokens;
    return 1.0 / (d == Denominator::rows ? denominators.rows : denominators.samples);
  };
  pass.each([&](Tape& tape) {
    tape.scale_losses(scale);
    for (const InteriorLoss& loss : tape.losses())
      result.interior[loss.name] += loss.sum.item<double>() * scale(loss.denominator);
  });

  const BridgeTarget target = backbone().bridge_target();
  StreamMap gradients{{"logprob", at::full_like(logprob, -scale(Denominator::supervised_tokens))}};
  StreamMap embedding_gradients;
  for (int unit = parts_.backbone->units() - 1; unit >= 0; --unit) {
    pass.backbone->backward(unit, gradients);
    if (unit != target.unit) continue;
    const auto found = gradients.find(target.stream);
    if (found == gradients.end()) continue;
    for (const auto& [modality, items] : batch.items) {
      embedding_gradients[modality] = bridge_backward(found->second, items.slots);
    }
  }
  for (auto& [modality, gradient] : embedding_gradients) {
    BoundComponent& connector = *parts_.connectors.at(modality);
    StreamMap inner{{"embeddings", gradient}};
    for (int unit = connector.units() - 1; unit >= 0; --unit) pass.connectors.at(modality)->backward(unit, inner);
    const auto features = inner.find("features");
    BoundComponent& encoder = *parts_.encoders.at(modality);
    StreamMap outer;
    if (features != inner.end())
      outer["features"] = reordered(features->second, batch.items.at(modality).permutation, true);
    for (int unit = encoder.units() - 1; unit >= 0; --unit) pass.encoders.at(modality)->backward(unit, outer);
  }
  pass.each([&](Tape& tape) { add_counters(result.counters, tape.counters()); });
  return result;
}

Tensor MultimodalModel::log_probs(const ModelBatch& batch) {
  Pass pass;
  TapeContext context;
  context.phase = Phase::evaluate;
  return run(pass, batch, context, "logprob");
}

Tensor MultimodalModel::logits(const ModelBatch& batch, KvCache& cache) {
  Pass pass;
  TapeContext context;
  context.phase = Phase::generate;
  context.cache = &cache;
  Tensor out = run(pass, batch, context, "logits");
  const Segments& text = batch.text.at("");
  std::vector<int64_t> counts;
  for (int64_t s = 0; s < text.count(); ++s) counts.push_back(text.length(s));
  cache.advance(counts);
  return out;
}

std::vector<BoundComponent*> MultimodalModel::components() {
  std::vector<BoundComponent*> out;
  for (const auto& [name, part] : parts_.encoders) out.push_back(part.get());
  for (const auto& [name, part] : parts_.connectors) out.push_back(part.get());
  out.push_back(parts_.backbone.get());
  return out;
}

std::vector<UnitBuffer*> MultimodalModel::buffers() {
  std::vector<UnitBuffer*> out;
  for (BoundComponent* component : components()) {
    for (const auto& buffer : component->buffers()) out.push_back(buffer.get());
  }
  return out;
}

void MultimodalModel::init_weights(uint64_t seed) {
  for (BoundComponent* component : components()) component->init_weights(seed);
}

void MultimodalModel::zero_gradients() {
  for (UnitBuffer* buffer : buffers()) {
    if (buffer->trainable()) buffer->gradient().zero_();
  }
}

void MultimodalModel::weights_written() {
  for (UnitBuffer* buffer : buffers()) buffer->master_written();
}

Encoder& MultimodalModel::encoder(const std::string& modality) {
  const auto found = parts_.encoders.find(modality);
  if (found == parts_.encoders.end())
    throw UserError(concat("the data has items of modality '", modality, "', the model has no such encoder"));
  return dynamic_cast<Encoder&>(found->second->component());
}

int64_t MultimodalModel::merge(const std::string& modality) {
  return dynamic_cast<Connector&>(parts_.connectors.at(modality)->component()).merge();
}

Backbone& MultimodalModel::backbone() { return dynamic_cast<Backbone&>(parts_.backbone->component()); }

}  // namespace loom
