#include "tests/loopback/step_data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/base/random.h"
#include "core/step/item_layout.h"
#include "tests/support/draws.h"

namespace loom::test {
namespace {

Tensor random_rows(int64_t rows, int64_t width, uint64_t sample, uint64_t item) {
  const Philox random({17, Purpose::noise, 0, 0, sample, item});
  Tensor out = at::empty({rows, width}, at::kFloat);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = static_cast<float>(random.normal(static_cast<uint64_t>(i)));
  return out;
}

// An item whose outputs the connector's merge factor divides.
ItemPlace random_item(const MultimodalModel& model, const std::string& modality, bool large, Draws& draws) {
  const Encoder& encoder = model.encoder(modality);
  const int64_t merge = model.merge(modality);
  ItemPlace place;
  place.modality = modality;
  do {
    MediaInfo info;
    info.modality = modality;
    info.height = large ? draws.between(4, 6) : draws.between(1, 3);
    info.width = large ? draws.between(5, 7) : draws.between(1, 5);
    place.meta = encoder.measure(info);
  } while (place.meta.outputs % merge != 0);
  place.slots = place.meta.outputs / merge;
  if (model.divisible(modality))
    place.cuts = legal_cuts(encoder.layout(place.meta), model.features_partition(modality), merge);
  return place;
}

struct ItemWish {
  std::string modality;
  bool large = false;
};

std::vector<ItemWish> wishes(const MultimodalModel& model, const DataChoice& choice, int64_t step, int64_t index,
                             Draws& draws) {
  std::vector<ItemWish> out;
  if (choice.mix == Mix::absent && step > 1) return out;
  const std::vector<std::string>& all = model.modalities();
  if (index == 0) {  // long items, so that there is something to divide
    for (const std::string& modality : all) out.push_back({modality, true});
    return out;
  }
  if (choice.mix == Mix::sparse) {
    if (index == 1) out.push_back({all[static_cast<size_t>(draws.below(static_cast<int64_t>(all.size())))], false});
    return out;
  }
  const auto picked = static_cast<size_t>(draws.below(static_cast<int64_t>(all.size())));
  for (size_t m = 0; m < all.size(); ++m) {
    if (choice.mix == Mix::lopsided && m != picked) continue;
    for (int64_t k = draws.below(3); k > 0; --k) out.push_back({all[m], draws.chance(0.1)});
  }
  draws.shuffle(out);
  return out;
}

PreparedSample random_sample(const MultimodalModel& model, const DataChoice& choice, int64_t step, int64_t index) {
  const uint64_t key = choice.seed * 100000 + static_cast<uint64_t>(step * 1000 + index);
  Draws draws(key, 1);
  PreparedSample out;
  Verdict& verdict = out.verdict;
  verdict.position = static_cast<uint64_t>(index);
  verdict.sample = key;
  verdict.name = "random." + std::to_string(key);
  const int64_t text = index == 0 ? choice.longest_text + 9 : draws.between(1, choice.longest_text);
  const std::vector<ItemWish> items = wishes(model, choice, step, index, draws);
  std::vector<int64_t> before;  // text tokens before each item
  for (size_t i = 0; i < items.size(); ++i) before.push_back(draws.between(0, text));
  std::sort(before.begin(), before.end());
  const bool silent = !choice.supervised || (index > 1 && draws.chance(0.1));
  size_t next = 0;
  for (int64_t t = 0; t <= text; ++t) {
    for (; next < items.size() && before[next] == t; ++next) {
      ItemPlace place = random_item(model, items[next].modality, items[next].large, draws);
      const int64_t width = model.encoder(place.modality).media_width();
      out.media.push_back(random_rows(place.meta.tokens, width, key, next + 1));
      const bool in_text = model.bridge_stream(place.modality).empty();
      place.begin = in_text ? static_cast<int64_t>(out.tokens.size()) : -1;
      if (in_text) {
        out.tokens.insert(out.tokens.end(), static_cast<size_t>(place.slots), 0);
        out.supervised.insert(out.supervised.end(), static_cast<size_t>(place.slots), 0);
      }
      verdict.items.push_back(std::move(place));
    }
    if (t == text) break;
    out.supervised.push_back(!silent && !out.tokens.empty() && draws.chance(0.6) ? 1 : 0);
    out.tokens.push_back(draws.below(11));
  }
  verdict.tokens = static_cast<int64_t>(out.tokens.size());
  for (size_t t = 1; t < out.supervised.size(); ++t) verdict.supervised += out.supervised[t];
  return out;
}

std::vector<int> some_ranks(int world, bool subset, Draws& draws) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  draws.shuffle(ranks);
  if (subset && world > 1) ranks.resize(static_cast<size_t>(draws.between(1, world - 1)));
  return ranks;
}

// Pieces of [0, rows) that meet at some of `cuts`, on `ranks` in any order; a rank may come twice.
std::vector<Piece> random_pieces(int64_t rows, std::vector<int64_t> cuts, std::vector<int> ranks, int most, bool force,
                                 Draws& draws) {
  draws.shuffle(ranks);
  const auto limit = std::min<int64_t>(std::min<int64_t>(most, static_cast<int64_t>(ranks.size())),
                                       static_cast<int64_t>(cuts.size()) + 1);
  int64_t count = force ? limit : draws.between(1, limit);
  ranks.resize(static_cast<size_t>(count));
  if (count > 1 && draws.chance(0.3)) {  // zigzag
    const int64_t more = std::min<int64_t>(draws.between(1, 2), static_cast<int64_t>(cuts.size()) + 1 - count);
    for (int64_t k = 0; k < more; ++k) ranks.push_back(ranks[static_cast<size_t>(k % count)]);
    count += more;
  }
  draws.shuffle(cuts);
  cuts.resize(static_cast<size_t>(count) - 1);
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(rows);
  std::vector<Piece> out;
  for (int64_t i = 0, begin = 0; i < count; begin = cuts[static_cast<size_t>(i++)])
    out.push_back({ranks[static_cast<size_t>(i)], begin, cuts[static_cast<size_t>(i)] - begin});
  if (draws.chance(0.15)) {  // a piece without rows
    const auto before = static_cast<size_t>(draws.below(count));
    const Piece empty{ranks[static_cast<size_t>(draws.below(count))], out[before].begin, 0};
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(before), empty);
  }
  return out;
}

}  // namespace

std::vector<PreparedSample> random_samples(const MultimodalModel& model, const DataChoice& choice, int64_t step) {
  std::vector<PreparedSample> out;
  for (int64_t i = 0; i < choice.samples; ++i) out.push_back(random_sample(model, choice, step, i));
  return out;
}

WorldLayout world_layout(const MultimodalModel& model, const LayoutChoice& choice) {
  WorldLayout layout;
  layout.balance = choice.balance;
  layout.world = choice.world;
  layout.bridge = choice.bridge;
  const auto fitting = [&](const BoundComponent& component, int tp, ComponentLayout out) {
    out.tp = split_limit(component.declarations()).ranks >= tp ? tp : 1;
    if (out.shard > choice.world / out.tp) out.shard = 0;
    return out;
  };
  layout.backbone = fitting(*model.parts().backbone, choice.backbone_tp,
                            {choice.backbone_sp, choice.backbone_shard, choice.backbone_tile});
  for (const auto& [modality, encoder] : model.parts().encoders) {
    layout.encoders[modality] =
        fitting(*encoder, choice.encoder_tp, {choice.encoder_sp, choice.encoder_shard, choice.encoder_tile});
    layout.encoders[modality].macro = choice.macro;
    layout.encoders[modality].ahead = choice.ahead;
    layout.connectors[modality] =
        fitting(*model.parts().connectors.at(modality), choice.connector_tp, {1, choice.connector_shard});
    layout.connectors[modality].side = choice.side;
  }
  return layout;
}

StepPlan single_plan(const std::vector<PreparedSample>& samples, int64_t step) {
  std::vector<Verdict> verdicts;
  for (const PreparedSample& sample : samples) verdicts.push_back(sample.verdict);
  return make_step_plan(step, std::move(verdicts), 1 << 20, 0);
}

StepPlan random_plan(const std::vector<PreparedSample>& samples, int64_t step, const LayoutChoice& choice,
                     const WorldLayout& layout) {
  StepPlan plan = single_plan(samples, step);
  if (choice.placing == Placing::planner) {
    int64_t budget = plan.tokens / (layout.lanes() * choice.microbatches) + 1;
    for (const Verdict& verdict : plan.samples) budget = std::max(budget, verdict.tokens);
    return make_step_plan(step, plan.samples, budget, 0, layout);
  }
  Draws draws(choice.seed * 100 + static_cast<uint64_t>(step), 2);
  const bool subset = choice.placing == Placing::subsets, one = choice.placing == Placing::one_rank;
  const auto ranks_of = [&] {
    std::vector<int> ranks = some_ranks(choice.world, subset, draws);
    if (one) ranks.resize(1);
    return ranks;
  };
  plan.layout = layout;
  plan.microbatches.assign(static_cast<size_t>(choice.microbatches), {});
  std::vector<int64_t> order(plan.samples.size());
  std::iota(order.begin(), order.end(), 0);
  draws.shuffle(order);
  const std::vector<int> text_ranks = ranks_of();
  std::map<std::string, std::vector<int>> item_ranks;
  for (const auto& [modality, encoder] : layout.encoders) item_ranks[modality] = ranks_of();
  std::map<std::string, bool> forced;
  // With three or more microbatches one in the middle stays without any row.
  const int64_t used = choice.microbatches > 2 ? choice.microbatches - 1 : choice.microbatches;
  for (const int64_t index : order) {
    const Verdict& verdict = plan.samples[static_cast<size_t>(index)];
    int64_t where = draws.below(used);
    if (index == 0) where = 0;
    if (!verdict.items.empty() && used > 1 && samples.size() > 3) where = draws.below(used - 1);  // the last: text only
    if (where == used - 1 && used < choice.microbatches) where = choice.microbatches - 1;
    MicrobatchPlan& microbatch = plan.microbatches[static_cast<size_t>(where)];
    std::vector<int64_t> anywhere(static_cast<size_t>(std::max<int64_t>(verdict.tokens - 1, 0)));
    std::iota(anywhere.begin(), anywhere.end(), 1);
    microbatch.samples.push_back(
        {index, random_pieces(verdict.tokens, anywhere, text_ranks, choice.backbone_sp, index == 0, draws)});
    microbatch.tokens += verdict.tokens;
    for (size_t i = 0; i < verdict.items.size(); ++i) {
      const ItemPlace& place = verdict.items[i];
      const bool force = !place.cuts.empty() && !std::exchange(forced[place.modality], true);
      microbatch.items[place.modality].push_back(
          {index, static_cast<int64_t>(i),
           random_pieces(place.meta.tokens, place.cuts, item_ranks[place.modality], choice.encoder_sp, force, draws)});
    }
  }
  for (MicrobatchPlan& microbatch : plan.microbatches) {
    for (auto& [modality, items] : microbatch.items) draws.shuffle(items);
  }
  check_plan(plan);
  return plan;
}

PlanFacts facts_of(const StepPlan& plan) {
  PlanFacts facts;
  const auto first_rank = [](const std::vector<Piece>& pieces) {
    const auto found = std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return p.rows > 0; });
    return found == pieces.end() ? -1 : found->rank;
  };
  const auto several = [&](const std::vector<Piece>& pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [&](const Piece& p) { return p.rows > 0 && p.rank != first_rank(pieces); });
  };
  const auto over_groups = [&](const std::vector<Piece>& pieces, int tp) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [&](const Piece& p) { return p.rows > 0 && p.rank / tp != first_rank(pieces) / tp; });
  };
  std::map<std::string, bool> split;
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    std::map<int64_t, std::vector<Piece>> homes;
    const std::vector<bool> nobody(static_cast<size_t>(plan.layout.world), false);
    std::vector<std::vector<bool>> busy{nobody}, busy_groups{nobody};
    const auto work_on = [&](const Piece& piece, int tp) {
      busy.back()[static_cast<size_t>(piece.rank)] = true;
      for (int member = 0; member < tp; ++member)
        busy_groups.back()[static_cast<size_t>(piece.rank / tp * tp + member)] = true;
    };
    for (const PlacedSample& placed : microbatch.samples) {
      facts.splits_samples = facts.splits_samples || several(placed.pieces);
      facts.splits_over_groups = facts.splits_over_groups || over_groups(placed.pieces, plan.layout.backbone.tp);
      homes[placed.sample] = placed.pieces;
      for (const Piece& p : placed.pieces) {
        if (p.rows > 0) work_on(p, plan.layout.backbone.tp);
      }
    }
    for (const auto& [modality, items] : microbatch.items) {
      busy.push_back(nobody);
      busy_groups.push_back(nobody);
      for (const PlacedItem& placed : items) {
        if (several(placed.pieces)) split[modality] = true;
        facts.splits_over_groups =
            facts.splits_over_groups || over_groups(placed.pieces, plan.layout.encoder(modality).tp);
        const int home = first_rank(homes[placed.sample]);
        for (const Piece& p : placed.pieces) {
          if (p.rows == 0) continue;
          work_on(p, plan.layout.encoder(modality).tp);
          facts.moves_embeddings = facts.moves_embeddings || p.rank != home;
        }
      }
    }
    const auto some_idle = [&](const std::vector<std::vector<bool>>& of) {
      return std::any_of(of.begin(), of.end(), [&](const std::vector<bool>& ranks) {
        const auto count = std::count(ranks.begin(), ranks.end(), true);
        return count > 0 && count < plan.layout.world;
      });
    };
    facts.idle_ranks = facts.idle_ranks || some_idle(busy);
    facts.idle_groups = facts.idle_groups || some_idle(busy_groups);
    facts.microbatch_without_items = facts.microbatch_without_items || microbatch.items.empty();
    facts.microbatch_without_rows = facts.microbatch_without_rows || microbatch.samples.empty();
  }
  for (const auto& [modality, yes] : split) facts.splits_items.push_back(modality);
  return facts;
}

}  // namespace loom::test
