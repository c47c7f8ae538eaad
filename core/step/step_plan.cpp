// Packing keeps the order of samples within a microbatch; first fit, so that a plan is a function of the verdicts
// alone. A lane's rows are cut anywhere: every service that mixes rows of the backbone knows how to fetch what it
// needs.
#include "core/step/step_plan.h"

#include <algorithm>

#include "core/base/error.h"

namespace loom {
namespace {

// The pack's rows in equal slices over the lane's ranks; two per rank where attention goes by tiles, the i-th from the
// front and the i-th from the back (zigzag): of a causal sample all ranks then attend to equally many pairs. The
// members of a tensor group share a slice.
void place_pack(const std::vector<int64_t>& pack, int lane, const WorldLayout& layout,
                const std::vector<Verdict>& samples, MicrobatchPlan& microbatch) {
  const int sp = layout.backbone.sp, tp = layout.backbone.tp;
  const int shares = layout.backbone.tile_queries == kByHeads || sp == 1 ? sp : 2 * sp, slices = shares * tp;
  const auto rank_of = [&](int of) {
    const int share = of / tp;
    return lane * layout.lane_ranks() + (share < sp ? share : shares - 1 - share) * tp + of % tp;
  };
  int64_t total = 0;
  for (const int64_t sample : pack) total += samples[static_cast<size_t>(sample)].tokens;
  int64_t begin = 0;  // of the sample within the pack
  int slice = 0;
  for (const int64_t sample : pack) {
    const int64_t tokens = samples[static_cast<size_t>(sample)].tokens;
    PlacedSample placed{sample, {}};
    if (tokens == 0) placed.pieces.push_back({rank_of(slice), 0, 0});
    for (int64_t row = 0; row < tokens;) {
      while (total * (slice + 1) / slices <= begin + row) ++slice;
      const int64_t end = std::min(tokens, total * (slice + 1) / slices - begin);
      placed.pieces.push_back({rank_of(slice), row, end - row});
      row = end;
    }
    begin += tokens;
    microbatch.samples.push_back(std::move(placed));
  }
  microbatch.tokens += total;
}

void list_items(const std::vector<Verdict>& samples, MicrobatchPlan& microbatch) {
  for (const PlacedSample& placed : microbatch.samples) {
    const std::vector<ItemPlace>& items = samples[static_cast<size_t>(placed.sample)].items;
    for (size_t i = 0; i < items.size(); ++i)
      microbatch.items[items[i].modality].push_back({placed.sample, static_cast<int64_t>(i), {}});
  }
}

}  // namespace

std::vector<std::vector<int64_t>> pack_samples(const std::vector<Verdict>& samples, int64_t budget) {
  std::vector<std::vector<int64_t>> out;
  std::vector<int64_t> filled;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t tokens = samples[i].tokens;
    LOOM_CHECK_USER(tokens <= budget, samples[i].name, ": ", tokens, " tokens exceed data.budget = ", budget);
    size_t home = 0;
    while (home < out.size() && filled[home] + tokens > budget) ++home;
    if (home == out.size()) {
      out.emplace_back();
      filled.push_back(0);
    }
    out[home].push_back(static_cast<int64_t>(i));
    filled[home] += tokens;
  }
  return out;
}

StepPlan make_step_plan(int64_t step, std::vector<Verdict> samples, int64_t budget, uint64_t next_position,
                        const WorldLayout& layout) {
  LOOM_CHECK(layout.world > 0 && layout.lane_ranks() > 0 && layout.world % layout.lane_ranks() == 0, layout.world,
             " ranks in lanes of ", layout.lane_ranks());
  StepPlan plan;
  plan.step = step;
  plan.layout = layout;
  plan.budget = budget;
  plan.next_position = next_position;
  for (const Verdict& v : samples) {
    LOOM_CHECK(v.ok, "a skipped sample in a plan: ", v.name);
    plan.supervised += v.supervised;
    plan.tokens += v.tokens;
  }
  const std::vector<std::vector<int64_t>> packs = pack_samples(samples, budget);
  const size_t lanes = static_cast<size_t>(layout.lanes());
  plan.microbatches.resize((packs.size() + lanes - 1) / lanes);
  for (size_t p = 0; p < packs.size(); ++p)
    place_pack(packs[p], static_cast<int>(p % lanes), layout, samples, plan.microbatches[p / lanes]);
  for (MicrobatchPlan& microbatch : plan.microbatches) {
    list_items(samples, microbatch);
    for (auto& [modality, items] : microbatch.items)
      assign_items(samples, microbatch.samples, items, layout, layout.encoder(modality).sp);
  }
  plan.samples = std::move(samples);
  return plan;
}

}  // namespace loom
