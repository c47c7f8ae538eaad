// Ranks differ in their rows alone: shards are of equal size. So of a large world those with most rows of the text,
// most targets, most rows of each encoder, and most of all together are run, and rank 0.
#include "pipelines/plan_world.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/dry.h"
#include "pipelines/layout_checks.h"
#include "pipelines/parallel_section.h"

namespace loom {
namespace {

constexpr int kAllRanks = 8;  // worlds up to here are run completely

using Loads = std::map<std::string, std::vector<double>>;  // by kind of work, then by rank

Loads loads_of(const StepPlan& plan, const MicrobatchPlan& microbatch) {
  Loads out;
  const auto add = [&](const std::string& kind, const Piece& piece, double share) {
    std::vector<double>& ranks = out[kind];
    ranks.resize(static_cast<size_t>(plan.layout.world));
    ranks[static_cast<size_t>(piece.rank)] += share * static_cast<double>(piece.rows);
  };
  for (const PlacedSample& placed : microbatch.samples) {
    const Verdict& verdict = plan.samples[static_cast<size_t>(placed.sample)];
    const double targets =
        static_cast<double>(verdict.supervised) / static_cast<double>(std::max<int64_t>(verdict.tokens, 1));
    for (const Piece& piece : placed.pieces) {
      add("text", piece, 1);
      add("targets", piece, targets);
    }
  }
  for (const auto& [modality, items] : microbatch.items) {
    for (const PlacedItem& item : items) {
      for (const Piece& piece : item.pieces) add("items of " + modality, piece, 1);
    }
  }
  std::vector<double> all(static_cast<size_t>(plan.layout.world));
  for (const auto& [kind, ranks] : out) {
    const double most = *std::max_element(ranks.begin(), ranks.end());
    for (size_t r = 0; r < ranks.size() && most > 0; ++r) all[r] += ranks[r] / most;
  }
  out["all"] = std::move(all);
  return out;
}

// Steps of the batch -> one step of the recipe's size: their mean, or the line through one and two microbatches.
double of_a_step(const WorldBatch& batch, const std::vector<double>& values) {
  if (batch.synthetic && values.size() == 2)
    return values[0] + static_cast<double>(batch.microbatches - 1) * (values[1] - values[0]);
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

int64_t of_a_step(const WorldBatch& batch, const std::vector<RankStep>& steps, const CommSite& site,
                  int64_t CommCount::*what) {
  std::vector<double> values;
  for (const RankStep& step : steps) {
    const auto found = step.traffic.find(site);
    values.push_back(found == step.traffic.end() ? 0 : static_cast<double>(found->second.*what));
  }
  return std::llround(of_a_step(batch, values));
}

Traffic traffic_of(const WorldBatch& batch, const std::vector<RankStep>& steps) {
  Traffic out;
  for (const RankStep& step : steps) {
    for (const auto& [site, count] : step.traffic)
      out[site] = {of_a_step(batch, steps, site, &CommCount::calls), of_a_step(batch, steps, site, &CommCount::bytes)};
  }
  return out;
}

Operations work_of(const WorldBatch& batch, const std::vector<RankStep>& steps) {
  std::vector<double> products, attention, again;
  for (const RankStep& step : steps) {
    products.push_back(step.work.products);
    attention.push_back(step.work.attention);
    again.push_back(step.work.again);
  }
  return {of_a_step(batch, products), of_a_step(batch, attention), of_a_step(batch, again)};
}

int64_t bytes_of(const Traffic& traffic) {
  int64_t bytes = 0;
  for (const auto& [site, count] : traffic) bytes += count.bytes;
  return bytes;
}

RankFigures figures_of(int rank, const RankPlan& run, const WorldBatch& batch) {
  return {rank, run.plan.peak, bytes_of(traffic_of(batch, run.steps)), work_of(batch, run.steps).model()};
}

void name_layouts(const Job& job, std::vector<PlanRow>& rows) {
  for (const std::string& line : layout_lines(job.layout, *job.model)) {
    const size_t end = line.find(' ');
    for (PlanRow& row : rows) {
      if (row.component != line.substr(0, end)) continue;
      row.layout = trim(line.substr(end));
      if (row.trainable == 0) row.layout += " · frozen";
    }
  }
  rows.back().layout.clear();
}

std::vector<std::string> limits_of(const Job& job, const WorldPlan& world) {
  const TrainingPlan& plan = world.plan;
  const int64_t held = plan.weights + plan.gradients + plan.optimizer;
  std::vector<std::string> out;
  const auto percent = [&](int64_t bytes) { return concat(100 * bytes / std::max<int64_t>(plan.peak, 1), " %"); };
  if (plan.activations() >= held && plan.activations() >= plan.gathered) {
    out.push_back(concat("activations at budget ", world.budget, " are ", percent(plan.activations())));
  } else if (held >= plan.gathered) {
    out.push_back(concat("weights, gradients and optimizer are ", percent(held)));
  } else {
    out.push_back(concat("gathered weights are ", percent(plan.gathered)));
  }
  const ComponentLayout& lane = world.layout.backbone;
  const AttentionHeads heads = fewest_heads(job.model->parts().backbone->declarations(), lane.tp);
  if (heads.heads > 0 && lane.tile_queries == kByHeads) {
    const std::string most = divisors(world.layout.world / lane.tp, heads.heads).back();
    if (most != std::to_string(lane.sp))
      out.push_back(concat("backbone sp may rise to ", most, " (heads ", heads.heads, "/", heads.kv_heads, ")"));
  }
  const auto shard = [&](const std::string& component, const ComponentLayout& layout) {
    const int groups = world.layout.world / layout.tp;
    if (layout.shard > 0 && layout.shard < groups) out.push_back(concat(component, " shard may rise to ", groups));
  };
  for (const std::string& modality : job.model->modalities()) {
    shard("encoders." + modality, world.layout.encoder(modality));
    shard("connectors." + modality, world.layout.connector(modality));
  }
  shard("backbone", world.layout.backbone);
  return out;
}

}  // namespace

int64_t WorldPlan::sent() const { return bytes_of(traffic); }

std::vector<int> ranks_to_run(const WorldBatch& batch) {
  const int world = batch.steps.front().plan.layout.world;
  std::set<int> out{0};
  for (int rank = 0; world <= kAllRanks && rank < world; ++rank) out.insert(rank);
  if (world <= kAllRanks) return {out.begin(), out.end()};
  std::map<std::string, std::pair<double, int>> most;
  for (const WorldBatch::Step& step : batch.steps) {
    for (const MicrobatchPlan& microbatch : step.plan.microbatches) {
      for (const auto& [kind, ranks] : loads_of(step.plan, microbatch)) {
        const auto best = std::max_element(ranks.begin(), ranks.end());
        const auto [found, fresh] = most.try_emplace(kind, 0.0, 0);
        if (*best > found->second.first) found->second = {*best, static_cast<int>(best - ranks.begin())};
      }
    }
  }
  for (const auto& [kind, best] : most) out.insert(best.second);
  return {out.begin(), out.end()};
}

WorldPlan plan_world(const Job& job, const WorldBatch& batch) {
  LOOM_CHECK(!batch.steps.empty(), "a world is planned for no step");
  const StepPlan& first = batch.steps.front().plan;
  LOOM_CHECK(first.layout == job.layout, "a batch for another layout");
  LOOM_CHECK_USER(!first.samples.empty(), job.recipe.file, ": there is no sample to plan with");
  WorldPlan out;
  out.layout = job.layout;
  out.batch = batch.words;
  out.synthetic = batch.synthetic;
  const double steps =
      batch.synthetic ? 1.0 / static_cast<double>(batch.microbatches) : static_cast<double>(batch.steps.size());
  for (const WorldBatch::Step& step : batch.steps) {
    out.tokens += step.plan.tokens;
    out.samples += static_cast<int64_t>(step.plan.samples.size());
    if (batch.synthetic) break;
  }
  out.tokens = std::llround(static_cast<double>(out.tokens) / steps);
  out.samples = std::llround(static_cast<double>(out.samples) / steps);
  out.microbatches = batch.microbatches;
  out.budget = job.recipe.data().get_int("budget");

  std::vector<LoadedStep> of_largest;
  for (const int rank : ranks_to_run(batch)) {
    std::vector<LoadedStep> mine;
    for (size_t step = 0; step < batch.steps.size(); ++step) mine.push_back(batch.of_rank(step, rank));
    DryCommunicator comm(rank, job.layout.world);
    RankPlan run = plan_rank(job, comm, mine);
    out.ranks.push_back(figures_of(rank, run, batch));
    if (run.plan.peak <= out.plan.peak) continue;
    out.largest = rank;
    out.traffic = traffic_of(batch, run.steps);
    out.plan = std::move(run.plan);
    out.plan.step = work_of(batch, run.steps);
    of_largest = std::move(mine);
  }
  out.complete = static_cast<int>(out.ranks.size()) == job.layout.world;
  name_layouts(job, out.plan.rows);
  if (10 * out.plan.activations() >= out.plan.peak && !job.recipe.train().get_bool("recompute")) {
    DryCommunicator comm(out.largest, job.layout.world);
    out.plan.recomputed_peak = plan_rank(job, comm, of_largest, true).plan.peak;
  }
  out.limits = limits_of(job, out);
  return out;
}

}  // namespace loom
