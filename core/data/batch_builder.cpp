// Rows are appended sample by sample, items modality by modality; nothing is sorted, so a plan's order is the batch's
// order.
#include "core/data/batch_builder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace loom {
namespace {

struct Span {
  const PreparedSample* sample = nullptr;
  int64_t tokens = 0;  // of its beginning
};

struct Items {
  std::vector<Tensor> media;
  std::vector<int64_t> slots;
  int64_t outputs = 0;
  bool permuted = false;
};

Tensor longs(const std::vector<int64_t>& values) { return at::tensor(at::IntArrayRef(values), at::kLong); }

[[noreturn]] void layout_mistake(const ItemPlace& place, const Verdict& verdict, const std::string& what) {
  throw PluginError(concat("encoders.", place.modality, ": layout() of an item of ", verdict.name, ": ", what));
}

void append_partition(const std::string& name, const ItemPartition& part, SegmentKey key, const ItemPlace& place,
                      const Verdict& verdict, Partitions& out) {
  const int64_t rows = std::accumulate(part.lengths.begin(), part.lengths.end(), int64_t{0});
  if (name.empty() && rows != place.meta.tokens) {
    layout_mistake(place, verdict,
                   concat("the default partition has ", rows, " rows, measure() said ", place.meta.tokens));
  }
  if (part.position_axes < 1 ||
      (!part.positions.empty() && static_cast<int64_t>(part.positions.size()) != rows * part.position_axes)) {
    layout_mistake(place, verdict,
                   concat("partition '", name, "' has ", part.positions.size(), " positions; expected ", rows,
                          " rows x ", part.position_axes, " axes"));
  }
  const bool first = out.find(name) == out.end();
  Segments& segments = out[name];
  if (first) segments.position_axes = part.position_axes;
  if (segments.position_axes != part.position_axes) {
    layout_mistake(place, verdict,
                   concat("partition '", name, "' has ", part.position_axes, " position axes, an item before it had ",
                          segments.position_axes));
  }
  for (const int64_t length : part.lengths) {
    if (length < 0) layout_mistake(place, verdict, concat("partition '", name, "' has a segment of ", length, " rows"));
    std::vector<int64_t> positions;
    if (!part.positions.empty()) {
      const auto begin = part.positions.begin() + static_cast<std::ptrdiff_t>(key.first_row * part.position_axes);
      positions.assign(begin, begin + static_cast<std::ptrdiff_t>(length * part.position_axes));
    }
    segments.append(length, key, positions);
    key.first_row += length;
  }
}

void append_permutation(const ItemLayout& layout, const ItemPlace& place, const Verdict& verdict, Items& items,
                        ItemBatch& batch) {
  const int64_t outputs = place.meta.outputs;
  if (layout.permutation.empty()) {
    for (int64_t row = 0; row < outputs; ++row) batch.permutation.push_back(items.outputs + row);
    return;
  }
  std::vector<bool> used(static_cast<size_t>(outputs), false);
  bool good = static_cast<int64_t>(layout.permutation.size()) == outputs;
  for (size_t i = 0; good && i < layout.permutation.size(); ++i) {
    const int64_t row = layout.permutation[i];
    good = row >= 0 && row < outputs && !used[static_cast<size_t>(row)];
    if (good) used[static_cast<size_t>(row)] = true;
    batch.permutation.push_back(items.outputs + row);
  }
  if (!good) layout_mistake(place, verdict, concat("permutation is not one of its ", outputs, " output rows"));
  items.permuted = true;
}

void append_item(const PreparedSample& sample, size_t index, int64_t row, const BatchModalities& modalities,
                 ModelBatch& batch, std::map<std::string, Items>& all) {
  const ItemPlace& place = sample.verdict.items[index];
  const auto modality = modalities.find(place.modality);
  LOOM_CHECK(modality != modalities.end(), sample.verdict.name, " has an item of modality ", place.modality,
             " without encoder");
  ItemBatch& out = batch.items[place.modality];
  Items& items = all[place.modality];
  const SegmentKey key{sample.verdict.sample, static_cast<uint64_t>(index) + 1, 0};
  const ItemLayout layout = modality->second.encoder->layout(place.meta);
  if (layout.partitions.find("") == layout.partitions.end())
    layout_mistake(place, sample.verdict, "there is no default partition ''");
  for (const auto& [name, part] : layout.partitions)
    append_partition(name, part, key, place, sample.verdict, out.encoder);
  append_permutation(layout, place, sample.verdict, items, out);
  out.connector[""].append(place.meta.outputs, key);
  out.connector["slots"].append(place.slots, key);
  for (int64_t slot = 0; slot < place.slots; ++slot) {
    LOOM_CHECK(sample.supervised[static_cast<size_t>(place.begin + slot)] == 0, "a media slot of ", sample.verdict.name,
               " is supervised");
    items.slots.push_back(row + place.begin + slot);
  }
  items.media.push_back(sample.media[index]);
  items.outputs += place.meta.outputs;
}

ModelBatch assemble(const std::vector<Span>& spans, const BatchModalities& modalities, bool prompt) {
  ModelBatch batch;
  Segments& text = batch.text[""];
  std::vector<int64_t> tokens, loss_rows, targets;
  std::map<std::string, Items> all;
  for (const Span& span : spans) {
    const PreparedSample& sample = *span.sample;
    LOOM_CHECK(sample.verdict.ok, "a skipped sample in a batch: ", sample.verdict.name);
    const int64_t row = static_cast<int64_t>(tokens.size());
    text.append(span.tokens, {sample.verdict.sample, 0, 0});
    tokens.insert(tokens.end(), sample.tokens.begin(),
                  sample.tokens.begin() + static_cast<std::ptrdiff_t>(span.tokens));
    if (prompt) {
      loss_rows.push_back(row + span.tokens - 1);
    } else {
      for (int64_t t = 0; t + 1 < span.tokens; ++t) {
        if (sample.supervised[static_cast<size_t>(t) + 1] == 0) continue;
        loss_rows.push_back(row + t);
        targets.push_back(sample.tokens[static_cast<size_t>(t) + 1]);
      }
    }
    for (size_t i = 0; i < sample.verdict.items.size(); ++i) {
      const ItemPlace& place = sample.verdict.items[i];
      if (place.begin + place.slots <= span.tokens) append_item(sample, i, row, modalities, batch, all);
    }
  }
  batch.tokens = longs(tokens);
  batch.loss_rows = longs(loss_rows);
  if (!prompt) batch.targets = longs(targets);
  for (auto& [modality, items] : all) {
    ItemBatch& out = batch.items[modality];
    out.media = at::cat(items.media).to(modalities.at(modality).compute);
    out.slots = longs(items.slots);
    if (!items.permuted) out.permutation.clear();
  }
  return batch;
}

}  // namespace

BatchModalities batch_modalities(MultimodalModel& model) {
  BatchModalities out;
  for (const auto& [modality, bound] : model.parts().encoders)
    out[modality] = {&model.encoder(modality), bound->options().compute};
  return out;
}

ModelBatch build_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities) {
  std::vector<Span> spans;
  for (const PreparedSample* sample : samples) spans.push_back({sample, static_cast<int64_t>(sample->tokens.size())});
  return assemble(spans, modalities, false);
}

ModelBatch build_batch(const LoadedStep& step, size_t microbatch, MultimodalModel& model) {
  std::vector<const PreparedSample*> samples;
  if (microbatch < step.plan.microbatches.size()) {
    for (const int64_t index : step.plan.microbatches[microbatch].samples)
      samples.push_back(&step.samples.at(static_cast<size_t>(index)));
  }
  return build_batch(samples, batch_modalities(model));
}

ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities) {
  std::vector<Span> spans;
  for (const PreparedSample* sample : samples) {
    const auto first = std::find(sample->supervised.begin(), sample->supervised.end(), 1);
    const int64_t tokens = first - sample->supervised.begin();
    LOOM_CHECK(tokens > 0, "an empty prompt: ", sample->verdict.name);
    spans.push_back({sample, tokens});
  }
  return assemble(spans, modalities, true);
}

ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, MultimodalModel& model) {
  return build_prompt_batch(samples, batch_modalities(model));
}

}  // namespace loom
