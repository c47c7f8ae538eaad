// One microbatch through the model. Forward: encoders and connectors one after another, then the backbone, with
// embeddings put in before the units that their connectors name. Backward is the same list from the end.
#include <ATen/ATen.h>

#include <set>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/comm/communicator.h"
#include "core/model/bridge.h"
#include "core/model/model_pass.h"

namespace loom {
namespace {

// Streams that a component reads before any of its units writes them.
std::vector<StreamDecl> external_inputs(const BoundComponent& component) {
  std::vector<StreamDecl> out;
  std::set<std::string> known;
  for (const UnitDecl& unit : component.declarations().units) {
    for (const StreamDecl& input : unit.inputs) {
      if (known.insert(input.name).second) out.push_back(input);
    }
    for (const StreamDecl& output : unit.outputs) known.insert(output.name);
  }
  return out;
}

Tensor zero_rows(int64_t rows, int64_t width, const BoundComponent& component) {
  return at::zeros({rows, width}, at::TensorOptions(component.options().compute).device(component.device()));
}

// Zero when there are no values (a dry run).
double value_of(const Tensor& scalar) { return scalar.is_meta() ? 0.0 : scalar.item<double>(); }

}  // namespace

// Encoder and connector of one modality: embeddings by the connector's stream, on the backbone's ranks.
void MultimodalModel::encode(Pass& pass, const std::string& modality, const ItemBatch& items, TapeContext context) {
  BoundComponent& encoder = *parts_.encoders.at(modality);
  context.partitions = &items.encoder;
  context.groups = &items.encoder_groups;
  context.cache = nullptr;
  context.inputs_need_grad = false;
  Branch& branch = pass.branches[modality];
  branch.encoder = std::make_unique<Tape>(encoder, pool_, context);
  StreamMap streams{{"media", items.media}};
  for (int unit = 0; unit < encoder.units(); ++unit) branch.encoder->forward(unit, streams);

  BoundComponent& connector = *parts_.connectors.at(modality);
  context.partitions = &items.connector;
  context.groups = &items.connector_groups;
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
    joined[input.name] =
        move_rows(comm(), concat("bridge: encoders.", modality, " ", input.name), items.to_connector, found->second);
  }
  for (int unit = 0; unit < connector.units(); ++unit) branch.connector->forward(unit, joined);
  branch.need_grad = encoder.trainable() || connector.trainable();
  for (const BridgeTarget& target : targets_.at(modality)) {
    const Tensor& rows = joined.at(target.embeddings);
    branch.connector_rows = rows.size(0);
    branch.embeddings.push_back(
        move_rows(comm(), concat("bridge: connectors.", modality, " ", target.embeddings), items.to_backbone, rows));
  }
}

void MultimodalModel::inject(Pass& pass, int unit, const ModelBatch& batch, StreamMap& streams) {
  for (auto& [modality, branch] : pass.branches) {
    const std::vector<BridgeTarget>& targets = targets_.at(modality);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t].unit != unit) continue;
      if (targets[t].mode == BridgeMode::stream) {
        streams.insert_or_assign(targets[t].stream, branch.embeddings[t]);
      } else {
        Tensor& stream = streams.at(targets[t].stream);
        stream = bridge_forward(stream, batch.items.at(modality).slots, branch.embeddings[t], targets[t].mode);
      }
      pass.backbone->injected(targets[t].stream, branch.need_grad);
    }
  }
}

StreamMap MultimodalModel::run(Pass& pass, const ModelBatch& batch, TapeContext context) {
  for (const auto& [modality, items] : batch.items) encode(pass, modality, items, context);

  context.partitions = &batch.text;
  context.groups = &batch.text_groups;
  context.group_loss_rows = &batch.group_loss_rows;
  context.inputs_need_grad = false;
  context.backward_follows = context.phase == Phase::train;
  pass.backbone = std::make_unique<Tape>(*parts_.backbone, pool_, context);
  StreamMap streams{{"tokens", batch.tokens}, {"loss_rows", batch.loss_rows}};
  if (batch.targets.defined()) streams.emplace("targets", batch.targets);
  for (const std::string& modality : modalities_) {
    // A stream of embeddings exists without them, too.
    const std::string stream = bridge_stream(modality);
    if (!stream.empty()) streams[stream] = zero_rows(0, input_of(*parts_.backbone, stream)->width, *parts_.backbone);
  }
  for (int unit = 0; unit < parts_.backbone->units(); ++unit) {
    inject(pass, unit, batch, streams);
    pass.backbone->forward(unit, streams);
  }
  return streams;
}

// Takes the gradients of what was injected before `unit` out of the backbone's, back to the connector's ranks.
void MultimodalModel::extract(Pass& pass, int unit, const ModelBatch& batch, StreamMap& gradients) {
  for (auto branch = pass.branches.rbegin(); branch != pass.branches.rend(); ++branch) {
    if (!branch->second.need_grad) continue;
    const ItemBatch& items = batch.items.at(branch->first);
    const std::vector<BridgeTarget>& targets = targets_.at(branch->first);
    for (size_t i = targets.size(); i-- > 0;) {
      const BridgeTarget& target = targets[i];
      if (target.unit != unit) continue;
      const Tensor& embeddings = branch->second.embeddings[i];
      const auto found = gradients.find(target.stream);
      Tensor rows;
      if (found == gradients.end()) {
        rows = at::zeros_like(embeddings);  // nothing on this rank depends on them
      } else if (target.mode == BridgeMode::stream) {
        rows = found->second;
        gradients.erase(found);
      } else {
        rows = bridge_backward(found->second, items.slots, target.mode);
      }
      const Tensor home =
          move_rows_adjoint(comm(), concat("bridge: connectors.", branch->first, " ", target.embeddings, " gradient"),
                            items.to_backbone, rows, branch->second.connector_rows);
      Tensor& sum = branch->second.gradients[target.embeddings];
      sum = sum.defined() ? sum + home : home;
    }
  }
}

void MultimodalModel::decode_backward(Branch& branch, const std::string& modality, const ItemBatch& items) {
  if (!branch.need_grad) return;
  BoundComponent& connector = *parts_.connectors.at(modality);
  StreamMap inner = std::move(branch.gradients);
  for (int unit = connector.units() - 1; unit >= 0; --unit) branch.connector->backward(unit, inner);
  BoundComponent& encoder = *parts_.encoders.at(modality);
  if (!encoder.trainable()) return;
  StreamMap outer;
  for (const auto& [name, rows] : branch.encoder_rows) {
    const auto found = inner.find(name);
    const Tensor gradient = found != inner.end()
                                ? found->second
                                : zero_rows(items.connector.at("").rows(), input_of(connector, name)->width, connector);
    outer[name] = move_rows_adjoint(comm(), concat("bridge: encoders.", modality, " ", name, " gradient"),
                                    items.to_connector, gradient, rows);
  }
  for (int unit = encoder.units() - 1; unit >= 0; --unit) branch.encoder->backward(unit, outer);
}

MicrobatchResult MultimodalModel::forward_backward(const ModelBatch& batch, int64_t step,
                                                   const Denominators& denominators) {
  Pass pass;
  TapeContext context;
  context.seed = seed_;
  context.observer = observer();
  context.step = step;
  const Tensor logprob = run(pass, batch, context).at("logprob");

  MicrobatchResult result;
  result.supervised = batch.targets.size(0);
  // Read at the end: a GPU is not waited for between forward and backward.
  const Tensor loss_sum = logprob.to(at::kDouble).sum();
  std::vector<std::pair<InteriorLoss, double>> interior;  // with its factor
  const auto scale = [&](Denominator d) {
    if (d == Denominator::supervised_tokens) return 1.0 / denominators.supervised_tokens;
    if (d == Denominator::samples) return 1.0 / denominators.samples;
    if (fault(Fault::interior_by_local_rows)) return 1.0 / static_cast<double>(batch.tokens.size(0) + 1);
    return 1.0 / denominators.rows;
  };
  pass.each([&](Tape& tape) {
    tape.scale_losses(scale);
    for (const InteriorLoss& loss : tape.losses()) interior.emplace_back(loss, scale(loss.denominator));
  });

  StreamMap gradients{{"logprob", at::full_like(logprob, -scale(Denominator::supervised_tokens))}};
  for (int unit = parts_.backbone->units() - 1; unit >= 0; --unit) {
    pass.backbone->backward(unit, gradients);
    extract(pass, unit, batch, gradients);
  }
  for (auto& [modality, branch] : pass.branches) decode_backward(branch, modality, batch.items.at(modality));
  pass.each([&](Tape& tape) { result.counters += tape.counters(); });
  result.loss_sum = -value_of(loss_sum);
  for (const auto& [loss, factor] : interior) result.interior[loss.name] += value_of(loss.sum) * factor;
  if (fault(Fault::state_per_microbatch)) end_step();
  return result;
}

BatchScores MultimodalModel::score(const ModelBatch& given) {
  const ModelBatch batch = to_device(given, device());
  Pass pass;
  TapeContext context;
  context.phase = Phase::evaluate;
  const StreamMap streams = run(pass, batch, context);
  const auto correct = streams.find("correct");
  return {streams.at("logprob"), correct != streams.end() ? correct->second : Tensor()};
}

Tensor MultimodalModel::logits(const ModelBatch& given, KvCache& cache) {
  const ModelBatch batch = to_device(given, device());
  Pass pass;
  TapeContext context;
  context.phase = Phase::generate;
  context.cache = &cache;
  Tensor out = run(pass, batch, context).at("logits");
  const Segments& text = batch.text.at("");
  std::vector<int64_t> counts;
  for (int64_t s = 0; s < text.count(); ++s) counts.push_back(text.length(s));
  cache.advance(counts);
  return out;
}

}  // namespace loom
