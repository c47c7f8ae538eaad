// Thousands of ranks have hundreds of thousands of samples that are all alike, so contents are kept once.
#include "pipelines/plan_world_batch.h"

#include <algorithm>

#include "core/base/error.h"

namespace loom {
namespace {

WorldBatch::Step full_lanes(const FullLane& lane, int64_t microbatches, const Job& job) {
  WorldBatch::Step out;
  std::vector<Verdict> verdicts;
  for (int64_t pack = 0; pack < microbatches * job.layout.lanes(); ++pack) {
    for (const size_t kind : lane.order) {
      verdicts.push_back(numbered(lane.kinds[kind], verdicts.size()));
      out.contents.push_back(kind);
    }
  }
  out.plan = make_step_plan(1, std::move(verdicts), job.recipe.data().get_int("budget"), 0, job.layout);
  return out;
}

}  // namespace

WorldBatch world_batch_from_data(const Job& job, int steps) {
  const std::unique_ptr<StepLoader> loader = make_loader(job, job.sources("train"), "");
  WorldBatch out;
  for (int step = 0; step < steps; ++step) {
    LoadedStep loaded = without_values(loader->next());
    WorldBatch::Step& added = out.steps.emplace_back();
    added.plan = std::move(loaded.plan);
    for (PreparedSample& sample : loaded.samples) {
      added.contents.push_back(out.samples.size());
      out.samples.push_back(std::move(sample));
    }
    out.microbatches = std::max(out.microbatches, static_cast<int64_t>(added.plan.microbatches.size()));
  }
  out.words = concat("first ", steps, steps == 1 ? " step" : " steps", " of the data");
  return out;
}

WorldBatch synthetic_world_batch(const Job& job) {
  const int64_t budget = job.recipe.data().get_int("budget");
  FullLane lane = full_lane(job, budget);
  LOOM_CHECK_USER(!lane.order.empty(), job.recipe.file, ": data.budget is ", budget, "; expected at least 2");
  const BatchSize size = parse_batch(job.recipe.train().at("batch"));
  const int64_t of_lane =
      size.unit == BatchSize::Unit::tokens ? budget : std::max<int64_t>(1, static_cast<int64_t>(lane.order.size()));
  const int64_t of_microbatch = of_lane * job.layout.lanes();
  WorldBatch out;
  out.microbatches = std::max<int64_t>(1, (size.count + of_microbatch - 1) / of_microbatch);
  for (int64_t count = 1; count <= std::min<int64_t>(2, out.microbatches); ++count)
    out.steps.push_back(full_lanes(lane, count, job));
  out.samples = std::move(lane.kinds);
  out.synthetic = true;
  out.words = lane.words + " in every lane";
  return out;
}

WorldBatch usual_world_batch(const Job& job) {
  return data_or_invented(
      job, [](const Job& of) { return world_batch_from_data(of); }, synthetic_world_batch);
}

LoadedStep WorldBatch::of_rank(size_t step, int rank) const {
  const Step& whole = steps.at(step);
  LoadedStep out;
  out.plan = whole.plan;
  out.samples.resize(whole.contents.size());
  // Also what its tensor group holds: in a real step members ask each other how many rows are supervised.
  const int tp = whole.plan.layout.backbone.tp;
  const auto take = [&](int64_t sample, const std::vector<Piece>& pieces) {
    const auto s = static_cast<size_t>(sample);
    if (std::none_of(pieces.begin(), pieces.end(),
                     [&](const Piece& p) { return p.rank / tp == rank / tp && p.rows > 0; }))
      return;
    if (out.samples[s].tokens.empty()) out.samples[s] = samples[whole.contents[s]];
  };
  for (const MicrobatchPlan& microbatch : whole.plan.microbatches) {
    for (const PlacedSample& placed : microbatch.samples) take(placed.sample, placed.pieces);
    for (const auto& [modality, items] : microbatch.items) {
      for (const PlacedItem& placed : items) take(placed.sample, placed.pieces);
    }
  }
  return out;
}

}  // namespace loom
