// A plan is a function of the verdicts alone. Packing keeps the order of samples within a pack. A lane's rows are cut
// anywhere: every service that mixes rows of the backbone knows how to fetch what it
// needs.
#include "core/step/step_plan.h"

#include <algorithm>
#include <tuple>

#include "core/base/error.h"
#include "core/step/pack_samples.h"

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

std::vector<EncoderPass> encoder_passes(const StepPlan& plan) {
  std::map<std::string, std::vector<size_t>> with_items;  // microbatches
  for (size_t m = 0; m < plan.microbatches.size(); ++m) {
    for (const auto& [modality, items] : plan.microbatches[m].items) {
      if (!items.empty()) with_items[modality].push_back(m);
    }
  }
  std::vector<EncoderPass> out;
  for (const auto& [modality, microbatches] : with_items) {
    const ComponentLayout layout = plan.layout.encoder(modality);
    const size_t macro = layout.macro == 0 ? plan.microbatches.size() : static_cast<size_t>(layout.macro);
    for (const size_t m : microbatches) {
      const size_t first = m / macro * macro;
      if (out.empty() || out.back().modality != modality || out.back().first != first)
        out.push_back({modality, first, std::min(macro, plan.microbatches.size() - first),
                       layout.ahead && first > 0 ? first - 1 : first, m});
      out.back().last = m;
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const EncoderPass& a, const EncoderPass& b) {
    return std::tie(a.before, a.first) < std::tie(b.before, b.first);
  });
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
  const std::vector<std::vector<int64_t>> packs =
      layout.balance.pack ? pack_evenly(samples, budget, layout) : pack_samples(samples, budget);
  const size_t lanes = static_cast<size_t>(layout.lanes());
  plan.microbatches.resize((packs.size() + lanes - 1) / lanes);
  for (size_t p = 0; p < packs.size(); ++p)
    place_pack(packs[p], static_cast<int>(p % lanes), layout, samples, plan.microbatches[p / lanes]);
  for (MicrobatchPlan& microbatch : plan.microbatches) list_items(samples, microbatch);
  plan.samples = std::move(samples);
  for (const EncoderPass& pass : encoder_passes(plan)) assign_items(plan, pass);
  return plan;
}

}  // namespace loom
