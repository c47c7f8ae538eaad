// Plans over random verdicts and worlds, by brute force: every row once, lanes, slices, and who encodes what.
#include "core/step/step_plan.h"
#include "core/step/pack_samples.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/base/error.h"
#include "core/step/spread_items.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/step/random_steps.h"

namespace loom {
namespace {

using test::Draws;

const std::vector<std::string> kModalities = {"image", "sound"};

std::vector<Verdict> random_verdicts(int64_t count, int64_t longest, Draws& draws) {
  std::vector<Verdict> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(test::random_verdict(static_cast<uint64_t>(i), longest, kModalities, draws));
  return out;
}

TEST(StepPlan, EveryRowOnceInItsLane) {
  int64_t sliced = 0, cut = 0, empty_lanes = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Draws draws(seed);
    const WorldLayout layout = test::random_world(6, kModalities, draws);
    const std::vector<Verdict> samples = random_verdicts(draws.between(0, 12), 40, draws);
    const int64_t budget = draws.between(40, 120);
    const StepPlan plan = make_step_plan(3, samples, budget, 77, layout);
    ASSERT_NO_THROW(check_plan(plan)) << "seed " << seed;
    const std::vector<std::vector<int64_t>> packs = pack_evenly(samples, budget, layout);
    const int lanes = layout.lanes(), sp = layout.backbone.sp;
    ASSERT_EQ(plan.microbatches.size(), (packs.size() + static_cast<size_t>(lanes) - 1) / static_cast<size_t>(lanes));

    std::vector<int> samples_seen(samples.size(), 0);
    std::map<std::pair<int64_t, int64_t>, int> items_seen;
    for (size_t m = 0; m < plan.microbatches.size(); ++m) {
      const MicrobatchPlan& microbatch = plan.microbatches[m];
      std::vector<std::vector<int64_t>> by_lane(static_cast<size_t>(lanes));
      std::vector<int64_t> rows(static_cast<size_t>(layout.world), 0);
      std::map<int, int> last_rank;  // by lane
      for (const PlacedSample& placed : microbatch.samples) {
        ++samples_seen[static_cast<size_t>(placed.sample)];
        const int lane = placed.pieces.front().rank / sp;
        by_lane[static_cast<size_t>(lane)].push_back(placed.sample);
        sliced += placed.pieces.size() > 1;
        for (const Piece& piece : placed.pieces) {
          EXPECT_EQ(piece.rank / sp, lane) << "a sample in two lanes, seed " << seed;
          const auto [last, first] = last_rank.emplace(lane, piece.rank);
          EXPECT_GE(piece.rank, last->second) << "a lane's rows are not one after another on its ranks, seed " << seed;
          last->second = piece.rank;
          rows[static_cast<size_t>(piece.rank)] += piece.rows;
        }
      }
      for (int lane = 0; lane < lanes; ++lane) {
        const size_t pack = m * static_cast<size_t>(lanes) + static_cast<size_t>(lane);
        const std::vector<int64_t> expected = pack < packs.size() ? packs[pack] : std::vector<int64_t>{};
        EXPECT_EQ(by_lane[static_cast<size_t>(lane)], expected) << "seed " << seed;
        empty_lanes += expected.empty();
        const auto first = rows.begin() + lane * sp;
        const auto [least, most] = std::minmax_element(first, first + sp);
        EXPECT_LE(*most - *least, 1) << "slices of a lane differ, seed " << seed;
      }
      for (const auto& [modality, items] : microbatch.items) {
        for (const PlacedItem& placed : items) {
          ++items_seen[{placed.sample, placed.item}];
          std::set<int> ranks;
          for (const Piece& piece : placed.pieces) ranks.insert(piece.rank);
          EXPECT_EQ(ranks.size(), placed.pieces.size()) << "two pieces on one rank, seed " << seed;
          EXPECT_LE(static_cast<int>(ranks.size()), layout.encoder(modality).sp) << "seed " << seed;
          cut += placed.pieces.size() > 1;
        }
      }
    }
    for (const int seen : samples_seen) EXPECT_EQ(seen, 1);
    for (size_t s = 0; s < samples.size(); ++s) {
      for (size_t i = 0; i < samples[s].items.size(); ++i)
        EXPECT_EQ((items_seen[{static_cast<int64_t>(s), static_cast<int64_t>(i)}]), 1) << "seed " << seed;
    }
  }
  EXPECT_GT(sliced, 100);
  EXPECT_GT(cut, 100);
  EXPECT_GT(empty_lanes, 50);
}

TEST(StepPlan, WhereAttentionGoesByTilesALaneGoesToItsRanksAndBack) {
  int64_t both_ways = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Draws draws(seed);
    WorldLayout layout;
    const int sp = static_cast<int>(draws.between(1, 4));
    layout.world = 2 * sp;
    layout.backbone.sp = sp;
    layout.backbone.tile_queries = static_cast<int>(draws.between(1, 2));
    const StepPlan plan = make_step_plan(3, random_verdicts(draws.between(1, 12), 40, draws), 120, 0, layout);
    ASSERT_NO_THROW(check_plan(plan)) << "seed " << seed;
    for (const MicrobatchPlan& microbatch : plan.microbatches) {
      std::vector<std::vector<int>> order(2);  // ranks of each lane's rows
      std::vector<int64_t> rows(static_cast<size_t>(layout.world), 0);
      for (const PlacedSample& placed : microbatch.samples) {
        for (const Piece& piece : placed.pieces) {
          std::vector<int>& seen = order[static_cast<size_t>(piece.rank / sp)];
          if (piece.rows > 0 && (seen.empty() || seen.back() != piece.rank)) seen.push_back(piece.rank);
          rows[static_cast<size_t>(piece.rank)] += piece.rows;
        }
      }
      for (int lane = 0; lane < 2; ++lane) {
        const std::vector<int>& seen = order[static_cast<size_t>(lane)];
        EXPECT_TRUE(std::is_sorted(seen.begin(), std::max_element(seen.begin(), seen.end()))) << "seed " << seed;
        EXPECT_TRUE(std::is_sorted(std::max_element(seen.begin(), seen.end()), seen.end(), std::greater<>()))
            << "seed " << seed;
        const auto first = rows.begin() + lane * sp;
        const auto [least, most] = std::minmax_element(first, first + sp);
        EXPECT_LE(*most - *least, 2) << "seed " << seed;
        both_ways += sp > 1 && static_cast<int>(seen.size()) == 2 * sp - 1;
      }
    }
  }
  EXPECT_GT(both_ways, 50);
}

TEST(StepPlan, FirstFitInSampleOrder) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draws draws(seed);
    const std::vector<Verdict> samples = random_verdicts(20, 30, draws);
    std::vector<std::vector<int64_t>> expected;
    for (size_t s = 0; s < samples.size(); ++s) {
      bool placed = false;
      for (std::vector<int64_t>& pack : expected) {
        int64_t tokens = samples[s].tokens;
        for (const int64_t other : pack) tokens += samples[static_cast<size_t>(other)].tokens;
        if (tokens > 50) continue;
        pack.push_back(static_cast<int64_t>(s));
        placed = true;
        break;
      }
      if (!placed) expected.push_back({static_cast<int64_t>(s)});
    }
    EXPECT_EQ(pack_samples(samples, 50), expected);
  }
  std::vector<Verdict> one(1);
  one[0].name = "train.0#5";
  one[0].tokens = 51;
  EXPECT_EQ(test::line_of<UserError>([&] { pack_samples(one, 50); }), "train.0#5: 51 tokens exceed data.budget = 50");
}

// One microbatch of items of these costs, each with `rows` rows and cuts everywhere if it may be cut.
struct Assigned {
  std::vector<Verdict> samples;
  std::vector<PlacedItem> items;
};
// All samples lie on rank 0.
void assign_again(Assigned& of, int world, int sp) {
  StepPlan plan;
  plan.samples = of.samples;
  plan.layout.world = world;
  plan.layout.encoders["image"].sp = sp;
  MicrobatchPlan& microbatch = plan.microbatches.emplace_back();
  for (size_t i = 0; i < of.samples.size(); ++i) microbatch.samples.push_back({static_cast<int64_t>(i), {{0, 0, 1}}});
  microbatch.items["image"] = of.items;
  assign_items(plan, {"image", 0, 1, 0, 0});
  of.items = microbatch.items["image"];
}
Assigned assigned(const std::vector<double>& costs, int64_t rows, bool cuts, int world, int sp) {
  Assigned out;
  for (size_t i = 0; i < costs.size(); ++i) {
    Verdict& verdict = out.samples.emplace_back();
    ItemPlace& place = verdict.items.emplace_back();
    place.modality = "image";
    place.meta = {rows, rows, costs[i], {}};
    if (cuts) place.cuts = test::count_up(1, rows);
    out.items.push_back({static_cast<int64_t>(i), 0, {}});
  }
  assign_again(out, world, sp);
  return out;
}

TEST(AssignItems, ALongItemIsCutAsFarAsItExceedsTheMean) {
  const auto rows_of = [](const PlacedItem& item) {
    std::vector<int64_t> out;
    for (const Piece& piece : item.pieces) out.push_back(piece.rows);
    return out;
  };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(rows_of(assigned({100}, 1000, true, 4, 4).items[0]), (Rows{250, 250, 250, 250}));
  EXPECT_EQ(rows_of(assigned({100}, 1000, true, 4, 2).items[0]), (Rows{500, 500}));  // at most sp ranks
  EXPECT_EQ(rows_of(assigned({100}, 1000, true, 4, 1).items[0]), (Rows{1000}));
  EXPECT_EQ(rows_of(assigned({100}, 1000, false, 4, 4).items[0]), (Rows{1000}));        // no cut
  EXPECT_EQ(rows_of(assigned({1, 1, 1, 1}, 1000, true, 4, 4).items[3]), (Rows{1000}));  // exactly the mean

  // Mean 50: the long one costs twice as much; short ones stay whole and fill the other ranks.
  const Assigned mixed = assigned({100, 30, 30, 40}, 100, true, 4, 4);
  EXPECT_EQ(rows_of(mixed.items[0]), (Rows{50, 50}));
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(mixed.items[i].pieces.size(), 1u);
  EXPECT_EQ(mixed.items[3].pieces[0].rank, 2);
  EXPECT_EQ(mixed.items[1].pieces[0].rank, 3);
}

TEST(AssignItems, CutsNearestToEqualShares) {
  Assigned one = assigned({100}, 100, false, 4, 4);
  one.samples[0].items[0].cuts = {10, 48, 90};
  assign_again(one, 4, 4);
  std::vector<int64_t> begins;
  for (const Piece& piece : one.items[0].pieces) begins.push_back(piece.begin);
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 10, 48, 90}));
  one.samples[0].items[0].cuts = {90};
  assign_again(one, 4, 4);
  ASSERT_EQ(one.items[0].pieces.size(), 2u);
  EXPECT_EQ(one.items[0].pieces[1].begin, 90);
}

TEST(AssignItems, DivisionNeverRaisesTheHighestLoadAboveTheBound) {
  int64_t better = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Draws draws(seed);
    const int world = static_cast<int>(draws.between(2, 6));
    std::vector<double> costs{static_cast<double>(draws.between(50, 200))};
    for (int64_t n = draws.between(0, 12); n > 0; --n) costs.push_back(static_cast<double>(draws.between(1, 20)));
    const auto highest = [&](const Assigned& got) {
      std::vector<double> load(static_cast<size_t>(world), 0);
      for (const PlacedItem& item : got.items) {
        const ItemMeta& meta = got.samples[static_cast<size_t>(item.sample)].items[0].meta;
        add_load(cost_of(meta), meta.tokens, item.pieces, load);
      }
      return *std::max_element(load.begin(), load.end());
    };
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / world;
    const double divided = highest(assigned(costs, 1000, true, world, world));
    const double whole = highest(assigned(costs, 1000, false, world, world));
    // Every share of a divided item, and every short item, costs at most the mean (to the rounding of a row).
    EXPECT_LE(divided, 2 * mean + 1) << "seed " << seed;
    better += divided < whole;
  }
  EXPECT_GT(better, 100);
}

TEST(CheckPlan, NamesWhatIsWrong) {
  const auto refusal = [](const std::function<void(StepPlan&)>& change) {
    Verdict a;
    a.name = "a";
    a.tokens = 10;
    ItemPlace place;
    place.modality = "image";
    place.meta = {8, 8, 1, {}};
    place.cuts = {4};
    a.items.push_back(place);
    WorldLayout layout;
    layout.world = 2;
    layout.backbone.sp = layout.encoders["image"].sp = 2;
    StepPlan plan = make_step_plan(1, {a}, 20, 1, layout);
    EXPECT_NO_THROW(check_plan(plan));
    EXPECT_EQ(plan.microbatches[0].items.at("image")[0].pieces.size(), 2u);
    change(plan);
    return test::message_of<InternalError>([&] { check_plan(plan); });
  };
  const auto pieces = [](StepPlan& plan) -> std::vector<Piece>& { return plan.microbatches[0].samples[0].pieces; };
  const auto items = [](StepPlan& plan) -> std::vector<PlacedItem>& { return plan.microbatches[0].items.at("image"); };
  EXPECT_HAS(refusal([&](StepPlan& p) { pieces(p)[1].rank = 2; }), "a lies on rank 2 of 2");
  EXPECT_HAS(refusal([&](StepPlan& p) { pieces(p)[1].begin = 6; }), "the piece on rank 1 is rows 6 to 11");
  EXPECT_HAS(refusal([&](StepPlan& p) { pieces(p)[1].rows = 4; }), "a: pieces up to rank 1 hold 9 of 10 rows");
  EXPECT_HAS(refusal([&](StepPlan& p) { pieces(p).clear(); }), "a lies nowhere");
  EXPECT_HAS(refusal([&](StepPlan& p) {
               items(p)[0].pieces = {{0, 0, 3}, {1, 3, 5}};
             }),
             "image 0 of a is cut at row 3 before rank 1, which is no legal cut");
  EXPECT_HAS(refusal([&](StepPlan& p) { items(p).push_back(items(p)[0]); }), "image 0 of a is encoded more than once");
  EXPECT_HAS(refusal([&](StepPlan& p) { items(p).clear(); }), "item 0 of a is encoded on no rank");
  EXPECT_HAS(refusal([&](StepPlan& p) { items(p)[0].item = 1; }), "is encoded in a microbatch without that sample");
  EXPECT_HAS(refusal([&](StepPlan& p) { p.microbatches.push_back(p.microbatches[0]); }), "a is in the plan more than");
  EXPECT_HAS(refusal([&](StepPlan& p) { p.microbatches[0].tokens = 9; }), "a microbatch of 10 tokens says 9");
  EXPECT_HAS(refusal([&](StepPlan& p) { p.tokens = 9; }), "a plan of 10 tokens says 9");
}

}  // namespace
}  // namespace loom
