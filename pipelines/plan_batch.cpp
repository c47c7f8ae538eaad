#include "pipelines/plan_batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

constexpr int64_t kCaption = 32;  // tokens of text beside invented items

Tensor meta_rows(int64_t rows, int64_t width) {
  return at::empty({rows, width}, at::TensorOptions(at::kFloat).device(at::kMeta));
}

int64_t encoder_rows(const StepPlan& plan, const std::vector<PlacedItem>& items) {
  int64_t rows = 0;
  for (const PlacedItem& item : items)
    rows += plan.samples[static_cast<size_t>(item.sample)].items[static_cast<size_t>(item.item)].meta.tokens;
  return rows;
}

int64_t supervised_tokens(const StepPlan& plan, const MicrobatchPlan& microbatch) {
  int64_t count = 0;
  for (const PlacedSample& placed : microbatch.samples)
    count += plan.samples[static_cast<size_t>(placed.sample)].supervised;
  return count;
}

// Microbatches that passes of encoders tie together; one pass that runs ahead is alive with the next one.
size_t window_of(const WorldLayout& layout, size_t microbatches) {
  size_t out = 1, passes = 1;
  for (const auto& [modality, encoder] : layout.encoders) {
    const size_t macro = encoder.macro == 0 ? microbatches : static_cast<size_t>(encoder.macro);
    out = std::lcm(out, std::min(macro, microbatches));
    if (encoder.ahead) passes = 2;
  }
  return out * passes;
}

LoadedStep window_at(const LoadedStep& step, size_t microbatch) {
  LoadedStep out = step;
  const std::vector<MicrobatchPlan>& all = step.plan.microbatches;
  const size_t window = window_of(step.plan.layout, all.size()), begin = microbatch / window * window;
  out.plan.microbatches.assign(all.begin() + static_cast<std::ptrdiff_t>(begin),
                               all.begin() + static_cast<std::ptrdiff_t>(std::min(begin + window, all.size())));
  return out;
}

// The microbatches with most tokens, most supervised tokens and most rows of each encoder.
std::vector<LoadedStep> largest_of(const std::vector<LoadedStep>& steps) {
  struct Largest {
    int64_t size = 0;
    size_t step = 0, microbatch = 0;
  };
  std::map<std::string, Largest> by;
  for (size_t s = 0; s < steps.size(); ++s) {
    const StepPlan& plan = steps[s].plan;
    for (size_t m = 0; m < plan.microbatches.size(); ++m) {
      const auto offer = [&](const std::string& what, int64_t size) {
        Largest& best = by[what];
        if (size > best.size) best = {size, s, m};
      };
      const MicrobatchPlan& microbatch = plan.microbatches[m];
      offer("tokens", microbatch.tokens);
      offer("supervised", supervised_tokens(plan, microbatch));
      for (const auto& [modality, items] : microbatch.items) offer("items of " + modality, encoder_rows(plan, items));
    }
  }
  std::set<std::pair<size_t, size_t>> chosen;
  for (const auto& [what, best] : by) {
    if (best.size > 0) chosen.emplace(best.step, best.microbatch);
  }
  std::vector<LoadedStep> out;
  for (const auto& [step, microbatch] : chosen) out.push_back(window_at(steps[step], microbatch));
  return out;
}

PlanBatch batch_of(const std::vector<LoadedStep>& steps, std::string words) {
  PlanBatch out;
  out.largest = largest_of(steps);
  for (const LoadedStep& step : steps) out.steps.push_back(step.plan);
  out.words = std::move(words);
  return out;
}

// Sizes to offer an encoder, the recipe's own first.
std::vector<MediaInfo> usual_media(const Job& job, const std::string& modality) {
  std::vector<int64_t> sides{224, 336, 448, 512, 256, 384, 28, 32};
  const ConfigValue& config = job.recipe.encoders.at(modality).config;
  if (const ConfigValue* own = config.find("image_size"); own != nullptr && own->kind() == ConfigValue::Kind::integer)
    sides.insert(sides.begin(), own->as_int());
  std::vector<MediaInfo> out;
  for (const int64_t frames : {1, 8, 16}) {
    for (const int64_t side : sides) {
      for (const int64_t channels : {3, 1}) out.push_back({modality, frames, side, side, channels, 0});
    }
  }
  for (const double seconds : {5.0, 30.0}) out.push_back({modality, std::llround(16000 * seconds), 0, 0, 1, seconds});
  return out;
}

// Where an invented item may be divided over ranks.
std::vector<int64_t> cuts_of(const Job& job, const ItemPlace& place) {
  const ModalityUse& use = job.preparer->options().modalities.at(place.modality);
  if (!use.divisible) return {};
  const ItemLayout layout = use.encoder->layout(place.meta);
  return layout.whole ? std::vector<int64_t>{} : legal_cuts(layout, use.outputs, use.merge);
}

}  // namespace

std::optional<ItemPlace> guess_item(const Job& job, const std::string& modality) {
  const ModalityUse& use = job.preparer->options().modalities.at(modality);
  for (const MediaInfo& info : usual_media(job, modality)) {
    try {
      ItemPlace place;
      place.modality = modality;
      place.meta = use.encoder->measure(info);
      if (place.meta.tokens <= 0 || place.meta.outputs <= 0 || place.meta.outputs % use.merge != 0) continue;
      place.slots = place.meta.outputs / use.merge;
      if (!use.in_text) place.begin = -1;
      return place;
    } catch (const UserError&) {  // not this size, then
    }
  }
  return std::nullopt;
}

PreparedSample plan_sample(const Job& job, std::vector<ItemPlace> items, int64_t text, int64_t supervised) {
  PreparedSample out;
  int64_t tokens = 1;
  for (ItemPlace& place : items) {
    const bool in_text = place.begin >= 0;
    place.begin = in_text ? tokens : -1;
    place.cuts = cuts_of(job, place);
    tokens += in_text ? place.slots : 0;
    out.media.push_back(meta_rows(place.meta.tokens, job.model->encoder(place.modality).media_width()));
  }
  tokens += text;
  supervised = std::min(supervised, text);
  out.tokens.assign(static_cast<size_t>(tokens), 0);
  out.supervised.assign(static_cast<size_t>(tokens), 0);
  std::fill(out.supervised.end() - static_cast<std::ptrdiff_t>(supervised), out.supervised.end(), 1);
  out.verdict.name = "an invented sample";
  out.verdict.tokens = tokens;
  out.verdict.supervised = supervised;
  out.verdict.items = std::move(items);
  return out;
}

LoadedStep without_values(LoadedStep step) {
  for (PreparedSample& sample : step.samples) {
    for (Tensor& media : sample.media) media = meta_rows(media.size(0), media.size(1));
  }
  return step;
}

FullLane full_lane(const Job& job, int64_t budget) {
  FullLane out;
  std::vector<ItemPlace> items;
  for (const std::string& modality : job.model->modalities()) {
    const std::optional<ItemPlace> item = guess_item(job, modality);
    LOOM_CHECK_USER(item.has_value(), job.recipe.file, ": encoders.", modality,
                    " takes none of the usual sizes of items, so that no batch can be invented; plan needs the data "
                    "(--batch-from-data)");
    out.words += concat(out.words.empty() ? "" : ", ", item->meta.tokens, " rows per ", modality);
    items.push_back(*item);
  }
  out.words = concat("invented, a full budget", out.words.empty() ? "" : "; ", out.words);
  int64_t left = budget;
  if (!items.empty()) {
    out.kinds.push_back(plan_sample(job, items, kCaption, kCaption));
    const int64_t tokens = out.kinds.front().verdict.tokens;
    LOOM_CHECK_USER(tokens <= budget, job.recipe.file, ": a sample with one item of each modality has ", tokens,
                    " tokens, data.budget is ", budget);
    for (; left >= tokens; left -= tokens) out.order.push_back(0);
  }
  if (left >= 2) {
    out.order.push_back(out.kinds.size());
    out.kinds.push_back(plan_sample(job, {}, left - 1, left - 1));
  }
  return out;
}

Verdict numbered(const PreparedSample& sample, size_t number) {
  Verdict out = sample.verdict;
  out.sample = out.position = number;
  return out;
}

PlanBatch batch_from_data(const Job& job, int steps) {
  const std::unique_ptr<StepLoader> loader = make_loader(job, job.sources("train"), "");
  std::vector<LoadedStep> loaded;
  for (int step = 0; step < steps; ++step) loaded.push_back(without_values(loader->next()));
  return batch_of(loaded, concat("first ", steps, steps == 1 ? " step" : " steps", " of the data"));
}

PlanBatch batch_from_step(const LoadedStep& step) {
  return batch_of({without_values(step)}, concat("step ", step.plan.step));
}

PlanBatch synthetic_batch(const Job& job, int64_t budget) {
  if (budget == 0) budget = job.recipe.data().get_int("budget");
  const FullLane lane = full_lane(job, budget);
  LoadedStep step;
  std::vector<Verdict> verdicts;
  for (const size_t kind : lane.order) {
    step.samples.push_back(lane.kinds[kind]);
    verdicts.push_back(numbered(lane.kinds[kind], verdicts.size()));
    step.samples.back().verdict = verdicts.back();
  }
  const auto samples = static_cast<double>(verdicts.size());
  step.plan = make_step_plan(1, std::move(verdicts), budget, 0, job.layout);
  PlanBatch out = batch_of({std::move(step)}, lane.words);
  const BatchSize size = parse_batch(job.recipe.train().at("batch"));
  out.repeat =
      static_cast<double>(size.count) / (size.unit == BatchSize::Unit::tokens ? static_cast<double>(budget) : samples);
  out.synthetic = true;
  return out;
}

PlanBatch usual_batch(const Job& job) {
  return data_or_invented(
      job, [](const Job& of) { return batch_from_data(of); }, [](const Job& of) { return synthetic_batch(of); });
}

std::optional<PlanBatch> repacked(const PlanBatch& batch, int64_t budget) {
  PlanBatch out = batch;
  out.largest.clear();
  for (const LoadedStep& step : batch.largest) {
    // Only the samples of its microbatches.
    LoadedStep again;
    std::vector<Verdict> verdicts;
    for (const MicrobatchPlan& microbatch : step.plan.microbatches) {
      for (const PlacedSample& placed : microbatch.samples) {
        const auto s = static_cast<size_t>(placed.sample);
        if (step.plan.samples[s].tokens > budget) return std::nullopt;
        verdicts.push_back(step.plan.samples[s]);
        again.samples.push_back(step.samples[s]);
      }
    }
    again.plan = make_step_plan(step.plan.step, std::move(verdicts), budget, 0, step.plan.layout);
    for (LoadedStep& one : largest_of({again})) out.largest.push_back(std::move(one));
  }
  return out;
}

}  // namespace loom
