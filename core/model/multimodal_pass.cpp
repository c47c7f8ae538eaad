// One microbatch through the model. Forward: the passes of encoders and connectors that begin with it, then the
// backbone, with embeddings put in before the units that their connectors name. Backward is the same list from the end,
// without the passes that later microbatches need, too.
#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/comm/communicator.h"
#include "core/model/bridge.h"
#include "core/model/model_pass.h"

namespace loom {
namespace {

// Zero when there are no values (a dry run).
double value_of(const Tensor& scalar) { return scalar.is_meta() ? 0.0 : scalar.item<double>(); }

}  // namespace

void MultimodalModel::inject(Pass& pass, int unit, StreamMap& streams) {
  for (auto& [modality, branch] : pass.branches) {
    const std::vector<BridgeTarget>& targets = targets_.at(modality);
    const size_t landing = branch->landing(pass.microbatch);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t].unit != unit) continue;
      const Tensor rows = branch->embeddings[landing].at(t).take();
      pass.rows[modality] = rows.size(0);
      if (targets[t].mode == BridgeMode::stream) {
        streams.insert_or_assign(targets[t].stream, rows);
      } else {
        Tensor& stream = streams.at(targets[t].stream);
        stream = bridge_forward(stream, branch->batch.landings[landing].slots, rows, targets[t].mode);
      }
      pass.backbone->injected(targets[t].stream, branch->need_grad);
    }
  }
}

StreamMap MultimodalModel::run(Pass& pass, const ModelBatch& batch, TapeContext context) {
  pass.microbatch = batch.microbatch;
  for (const EncoderBatch& items : batch.encode) pass.begun.push_back(&encode(pass.open, items, context));
  for (const auto& [modality, number] : batch.items) {
    const auto found = pass.open.branches.find({modality, number});
    LOOM_CHECK(found != pass.open.branches.end(), "microbatch ", batch.microbatch, " comes before pass ", number,
               " of encoders.", modality);
    pass.branches[modality] = &found->second;
  }

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
    inject(pass, unit, streams);
    pass.backbone->forward(unit, streams);
  }
  return streams;
}

// Takes the gradients of what was injected before `unit` out of the backbone's, and sends them to the connector's
// ranks.
void MultimodalModel::extract(Pass& pass, int unit, StreamMap& gradients) {
  for (auto place = pass.branches.rbegin(); place != pass.branches.rend(); ++place) {
    const auto& [modality, branch] = *place;
    if (!branch->need_grad) continue;
    const size_t number = branch->landing(pass.microbatch);
    const Landing& landing = branch->batch.landings[number];
    const std::vector<BridgeTarget>& targets = targets_.at(modality);
    for (size_t i = targets.size(); i-- > 0;) {
      const BridgeTarget& target = targets[i];
      if (target.unit != unit) continue;
      const auto found = gradients.find(target.stream);
      Tensor rows;
      if (found == gradients.end()) {  // nothing on this rank depends on them
        rows = zero_rows(pass.rows.at(modality), input_of(*parts_.backbone, target.stream)->width, *parts_.backbone);
      } else if (target.mode == BridgeMode::stream) {
        rows = found->second;
        gradients.erase(found);
      } else {
        rows = bridge_backward(found->second, landing.slots, target.mode);
      }
      branch->gradients[number].emplace(
          i, MovingRows::back(comm(), concat("bridge: connectors.", modality, " ", target.embeddings, " gradient"),
                              landing.to_backbone, rows, landing.rows));
    }
  }
}

MicrobatchResult MultimodalModel::forward_backward(const ModelBatch& batch, int64_t step,
                                                   const Denominators& denominators) {
  Pass pass(*open_);
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
  const auto take_losses = [&](Tape& tape) {
    tape.scale_losses(scale);
    for (const InteriorLoss& loss : tape.losses()) interior.emplace_back(loss, scale(loss.denominator));
  };
  for (Branch* branch : pass.begun) {
    take_losses(*branch->encoder);
    take_losses(*branch->connector);
  }
  take_losses(*pass.backbone);

  StreamMap gradients{{"logprob", at::full_like(logprob, -scale(Denominator::supervised_tokens))}};
  for (int unit = parts_.backbone->units() - 1; unit >= 0; --unit) {
    pass.backbone->backward(unit, gradients);
    extract(pass, unit, gradients);
  }
  result.counters += pass.backbone->counters();
  pass.backbone = nullptr;
  for (const auto& [modality, branch] : pass.branches) {
    if (branch->batch.landings.back().microbatch != batch.microbatch) continue;
    encode_backward(*branch);
    result.counters += branch->encoder->counters();
    result.counters += branch->connector->counters();
    open_->branches.erase({modality, batch.items.at(modality)});
  }
  result.loss_sum = -value_of(loss_sum);
  for (const auto& [loss, factor] : interior) result.interior[loss.name] += value_of(loss.sum) * factor;
  if (fault(Fault::state_per_microbatch)) end_step();
  return result;
}

BatchScores MultimodalModel::score(const ModelBatch& given) {
  const ModelBatch batch = to_device(given, device());
  OpenPasses open;
  Pass pass(open);
  TapeContext context;
  context.phase = Phase::evaluate;
  const StreamMap streams = run(pass, batch, context);
  const auto correct = streams.find("correct");
  return {streams.at("logprob"), correct != streams.end() ? correct->second : Tensor()};
}

Tensor MultimodalModel::logits(const ModelBatch& given, KvCache& cache) {
  const ModelBatch batch = to_device(given, device());
  OpenPasses open;
  Pass pass(open);
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
