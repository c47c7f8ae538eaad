// A rank's tensors from the plan's streams (stream_builder.h). Nothing is sorted, so a plan's order is the batch's
// order; one rank is the case in which every piece is whole.
#include "core/data/batch_builder.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/data/pass_builder.h"
#include "core/data/stream_builder.h"
#include "core/step/placement.h"

namespace loom {
namespace {

using Samples = std::vector<const PreparedSample*>;

void check_slots(const PreparedSample& sample, const Verdict& verdict) {
  for (const ItemPlace& place : verdict.items) {
    for (int64_t row = place.begin; place.begin >= 0 && row < std::min(place.begin + place.slots, verdict.tokens);
         ++row)
      LOOM_CHECK(sample.supervised[static_cast<size_t>(row)] == 0, "a media slot of ", verdict.name, " is supervised");
  }
}

// Tokens of this rank's rows, and its loss rows. A row's target is the sample's next token, on whichever rank it lies.
void build_text(const StepPlan& plan, const MicrobatchPlan& microbatch, const Samples& samples,
                const std::vector<StreamItem>& text, int rank, bool prompt, ModelBatch& batch) {
  std::vector<int64_t> tokens, loss_rows, targets;
  for (const LocalPiece& local : pieces_on(text, rank)) {
    const int64_t index = microbatch.samples[local.item].sample;
    const Verdict& verdict = plan.samples[static_cast<size_t>(index)];
    const int64_t begin = local.piece.begin, end = begin + local.piece.rows;
    if (begin == end) continue;
    const PreparedSample& sample = contents_of(plan, samples, index, rank);
    LOOM_CHECK(static_cast<int64_t>(sample.tokens.size()) >= verdict.tokens &&
                   sample.supervised.size() == sample.tokens.size(),
               verdict.name, " has ", sample.tokens.size(), " of ", verdict.tokens, " tokens on rank ", rank);
    check_slots(sample, verdict);
    const auto first = sample.tokens.begin();
    tokens.insert(tokens.end(), first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end));
    if (prompt) {
      if (end == verdict.tokens) loss_rows.push_back(local.local_row + local.piece.rows - 1);
      continue;
    }
    const int64_t known = fault(Fault::slice_before_shift) ? end : verdict.tokens;
    for (int64_t t = begin; t < end && t + 1 < known; ++t) {
      if (sample.supervised[static_cast<size_t>(t) + 1] == 0) continue;
      loss_rows.push_back(local.local_row + t - begin);
      targets.push_back(sample.tokens[static_cast<size_t>(t) + 1]);
    }
  }
  batch.tokens = longs(tokens);
  batch.loss_rows = longs(loss_rows);
  if (!prompt) batch.targets = longs(targets);
}

ModelBatch assemble(const StepPlan& plan, size_t number, const Samples& samples, const BatchModalities& modalities,
                    int rank, bool prompt) {
  const MicrobatchPlan& microbatch = plan.microbatches.at(number);
  ModelBatch batch;
  batch.microbatch = number;
  const std::vector<StreamItem> text = text_items(plan, microbatch);
  batch.text = local_partitions(text, rank);
  batch.text[""];
  const int text_tp = plan.layout.backbone.tp;
  if (text_tp > 1) batch.text_groups = group_partitions(text, rank, text_tp);
  build_text(plan, microbatch, samples, text, rank, prompt, batch);

  for (const auto& [modality, use] : modalities) {
    if (use.stream.empty()) continue;
    LOOM_CHECK(batch.text.find(use.stream) == batch.text.end(), "two modalities make the stream ", use.stream);
    const std::vector<StreamItem> items = embedding_items(plan, microbatch, text, modality);
    Partitions local = local_partitions(items, rank);
    batch.text.emplace(use.stream, std::move(local[""]));
    if (text_tp > 1) batch.text_groups.emplace(use.stream, group_partitions(items, rank, text_tp)[""]);
  }
  for (const EncoderPass& pass : encoder_passes(plan)) {
    const auto found = modalities.find(pass.modality);
    LOOM_CHECK(found != modalities.end(), "items of modality ", pass.modality, ", which has no encoder");
    if (pass.before == number) batch.encode.push_back(build_pass(plan, pass, samples, found->second, rank));
    const auto items = microbatch.items.find(pass.modality);
    const bool serves = number >= pass.first && number < pass.first + pass.count;
    if (serves && items != microbatch.items.end() && !items->second.empty()) batch.items[pass.modality] = pass.first;
  }
  return batch;
}

// One microbatch on one rank: of each sample the first tokens, with the items that lie within them. Items that are not
// in the text are always shown.
ModelBatch assemble_alone(const Samples& samples, const std::vector<int64_t>& tokens, const BatchModalities& modalities,
                          bool prompt) {
  StepPlan plan;
  MicrobatchPlan& microbatch = plan.microbatches.emplace_back();
  for (size_t s = 0; s < samples.size(); ++s) {
    const int64_t index = static_cast<int64_t>(s);
    Verdict& verdict = plan.samples.emplace_back(samples[s]->verdict);
    verdict.tokens = tokens[s];
    microbatch.samples.push_back({index, {{0, 0, tokens[s]}}});
    microbatch.tokens += tokens[s];
    for (size_t i = 0; i < verdict.items.size(); ++i) {
      const ItemPlace& place = verdict.items[i];
      if (place.begin >= 0 && place.begin + place.slots > tokens[s]) continue;
      microbatch.items[place.modality].push_back({index, static_cast<int64_t>(i), {{0, 0, place.meta.tokens}}});
    }
  }
  return assemble(plan, 0, samples, modalities, 0, prompt);
}

}  // namespace

bool PreparedSample::absent() const {
  return tokens.empty() && std::none_of(media.begin(), media.end(), [](const Tensor& rows) { return rows.defined(); });
}

BatchModalities batch_modalities(const MultimodalModel& model) {
  BatchModalities out;
  for (const auto& [modality, bound] : model.parts().encoders) {
    out[modality] = {&model.encoder(modality),      bound->options().compute, model.features_partition(modality),
                     model.bridge_stream(modality), bound->options().origin,  model.connector_widths(modality)};
  }
  return out;
}

ModelBatch build_batch(const StepPlan& plan, size_t microbatch, const std::vector<const PreparedSample*>& samples,
                       const BatchModalities& modalities, int rank) {
  LOOM_CHECK(rank >= 0 && rank < plan.layout.world && samples.size() == plan.samples.size(), "rank ", rank, " of ",
             plan.layout.world, ", ", samples.size(), " of ", plan.samples.size(), " samples");
  return assemble(plan, microbatch, samples, modalities, rank, false);
}

ModelBatch build_batch(const LoadedStep& step, size_t microbatch, const MultimodalModel& model) {
  const BatchModalities modalities = batch_modalities(model);
  if (microbatch >= step.plan.microbatches.size()) return assemble_alone({}, {}, modalities, false);
  std::vector<const PreparedSample*> samples;
  for (const PreparedSample& sample : step.samples) samples.push_back(sample.absent() ? nullptr : &sample);
  const int rank = model.comm().rank(), tp = step.plan.layout.backbone.tp;
  ModelBatch batch = build_batch(step.plan, microbatch, samples, modalities, rank);
  for (int member = 0; tp > 1 && model.device().is_meta() && member < tp; ++member) {
    const MicrobatchPlan& plan = step.plan.microbatches[microbatch];
    ModelBatch theirs;
    build_text(step.plan, plan, samples, text_items(step.plan, plan), rank / tp * tp + member, false, theirs);
    batch.group_loss_rows.push_back(theirs.loss_rows.numel());
  }
  return batch;
}

ModelBatch build_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities) {
  std::vector<int64_t> tokens;
  for (const PreparedSample* sample : samples) tokens.push_back(static_cast<int64_t>(sample->tokens.size()));
  return assemble_alone(samples, tokens, modalities, false);
}

int64_t answer_begin(const PreparedSample& sample) {
  const std::vector<uint8_t>& supervised = sample.supervised;
  auto begin = static_cast<int64_t>(supervised.size());
  while (begin > 0 && supervised[static_cast<size_t>(begin) - 1] == 0) --begin;
  if (begin == 0) return static_cast<int64_t>(supervised.size());
  while (begin > 0 && supervised[static_cast<size_t>(begin) - 1] != 0) --begin;
  return begin;
}

ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities) {
  std::vector<int64_t> tokens;
  for (const PreparedSample* sample : samples) {
    tokens.push_back(answer_begin(*sample));
    LOOM_CHECK(tokens.back() > 0, "an empty prompt: ", sample->verdict.name);
  }
  return assemble_alone(samples, tokens, modalities, true);
}

ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, const MultimodalModel& model) {
  return build_prompt_batch(samples, batch_modalities(model));
}

}  // namespace loom
