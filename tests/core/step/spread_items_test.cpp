// Who encodes what: nothing leaves its group, exchanges never make it worse than greedy alone, and how even it gets
// under heavy tails (predicted costs).
#include "core/step/spread_items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/base/random.h"
#include "tests/core/step/random_steps.h"

namespace loom {
namespace {

using test::Draws;

std::vector<double> loads_of(const std::vector<ItemWork>& items, const std::vector<std::vector<Piece>>& pieces,
                             int ranks) {
  std::vector<double> out(static_cast<size_t>(ranks));
  for (size_t i = 0; i < items.size(); ++i) add_load(items[i].cost, items[i].rows, pieces[i], out);
  return out;
}

double most_over_mean(const std::vector<double>& loads) {
  const double all = std::accumulate(loads.begin(), loads.end(), 0.0);
  return *std::max_element(loads.begin(), loads.end()) * static_cast<double>(loads.size()) / all;
}

// Items of log-normal lengths with a cost of 4000 n + n^2, some per rank, which may be cut at every row.
struct Tail {
  std::vector<ItemWork> items;
  std::vector<int64_t> cuts;  // of the longest
};
Tail heavy_tail(int ranks, int64_t per_rank, double sigma, uint64_t seed) {
  Tail out;
  const Philox random({seed, Purpose::sample});
  std::vector<double> normal(static_cast<size_t>(ranks * per_rank));
  int64_t longest = 0;
  for (size_t i = 0; i < normal.size(); ++i) {
    const double u = (static_cast<double>(random.below(1 << 30, 2 * i)) + 0.5) / (1 << 30);
    const double w = (static_cast<double>(random.below(1 << 30, 2 * i + 1)) + 0.5) / (1 << 30);
    const double length = std::exp(std::log(1000.0) + sigma * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * w));
    ItemWork item;
    item.rows = std::max<int64_t>(16, std::llround(length));
    item.cost = static_cast<double>(item.rows) * (4000 + static_cast<double>(item.rows));
    item.home = static_cast<int>(static_cast<int64_t>(i) / per_rank);
    longest = std::max(longest, item.rows);
    out.items.push_back(item);
  }
  out.cuts.resize(static_cast<size_t>(longest - 1));
  std::iota(out.cuts.begin(), out.cuts.end(), int64_t{1});
  return out;
}

// Cuts of its own for each item, so that they end within it.
std::vector<double> loads_under(const Tail& tail, int ranks, const Balance& balance) {
  std::vector<std::vector<int64_t>> cuts;
  cuts.reserve(tail.items.size());
  std::vector<ItemWork> items = tail.items;
  for (ItemWork& item : items) {
    cuts.emplace_back(tail.cuts.begin(), tail.cuts.begin() + item.rows - 1);
    item.cuts = &cuts.back();
  }
  return loads_of(items, spread_items(items, ranks, ranks, balance), ranks);
}

TEST(SpreadItems, EvenUnderHeavyTails) {
  struct Way {
    const char* name;
    Balance balance;
  };
  const Way ways[] = {{"none", {1, false, false}},           {"grouped 2", {2, true, false}},
                      {"grouped 4", {4, true, false}},       {"grouped 8", {8, true, false}},
                      {"grouped 32", {0, true, false}},      {"LSSP only", {0, false, true}},
                      {"grouped 8 + LSSP", {8, true, true}}, {"both", {0, true, true}}};
  std::printf("32 ranks, 8 items each, sigma 1.2, cost 4000 n + n^2, 100 seeds: most over mean load\n");
  double before = 1e9;
  for (const Way& way : ways) {
    std::vector<double> ratios;
    for (uint64_t seed = 1; seed <= 100; ++seed)
      ratios.push_back(most_over_mean(loads_under(heavy_tail(32, 8, 1.2, seed), 32, way.balance)));
    std::sort(ratios.begin(), ratios.end());
    std::printf("  %-17s median %.3f  p95 %.3f\n", way.name, ratios[50], ratios[95]);
    if (std::string(way.name) == "both") {
      EXPECT_LE(ratios[95], 1.1);
    }
    if (way.balance.move && !way.balance.split) {
      EXPECT_LE(ratios[50], before);
      before = ratios[50];
    }
  }
}

// Longest first to the least loaded rank.
double greedy(const std::vector<double>& costs, int ranks) {
  std::vector<double> sorted = costs, loads(static_cast<size_t>(ranks));
  std::sort(sorted.rbegin(), sorted.rend());
  for (const double cost : sorted) *std::min_element(loads.begin(), loads.end()) += cost;
  return *std::max_element(loads.begin(), loads.end());
}

TEST(SpreadItems, WholeItemsLieAtLeastAsEvenAsGreedyLeavesThem) {
  int64_t better = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Draws draws(seed);
    const int ranks = static_cast<int>(draws.between(1, 6));
    std::vector<double> costs;
    std::vector<ItemWork> items;
    for (int64_t n = draws.between(0, 20); n > 0; --n) {
      costs.push_back(static_cast<double>(draws.between(1, 40)));
      items.push_back({costs.back(), static_cast<int>(draws.between(0, ranks - 1)), 10, nullptr});
    }
    const auto pieces = spread_items(items, ranks, ranks);
    for (const auto& of_item : pieces) {
      ASSERT_EQ(of_item.size(), 1u);
      EXPECT_EQ(of_item[0].rows, 10);
    }
    const std::vector<double> loads = loads_of(items, pieces, ranks);
    const double most = *std::max_element(loads.begin(), loads.end()), wanted = greedy(costs, ranks);
    EXPECT_LE(most, wanted) << "seed " << seed;
    better += most < wanted ? 1 : 0;
  }
  EXPECT_GT(better, 30);
}

TEST(SpreadItems, NothingLeavesItsGroupAndNothingStaysThatMayNot) {
  int64_t moved = 0, divided = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (const int group : {0, 1, 2, 4}) {
      const Tail tail = heavy_tail(8, 3, 1.2, seed);
      std::vector<ItemWork> items = tail.items;
      for (ItemWork& item : items) item.cuts = &tail.cuts;
      for (const bool move : {true, false}) {
        const Balance balance{group, move, true};
        const auto pieces = spread_items(items, 8, 4, balance);
        const int ranks = balance_group(balance, 8);
        for (size_t i = 0; i < items.size(); ++i) {
          for (const Piece& piece : pieces[i]) EXPECT_EQ(piece.rank / ranks, items[i].home / ranks);
          EXPECT_LE(pieces[i].size(), 4u);
          if (pieces[i].size() > 1) ++divided;
          if (pieces[i].size() > 1 || pieces[i][0].rank == items[i].home) continue;
          EXPECT_TRUE(move);
          ++moved;
        }
      }
    }
  }
  EXPECT_GT(moved, 1000);
  EXPECT_GT(divided, 100);
}

// Memory decides where cost does not: nobody holds more rows of an item than a rank may.
TEST(SpreadItems, NoPieceIsLongerThanARankMayHold) {
  std::vector<int64_t> cuts;
  for (int64_t cut = 10; cut < 100; cut += 10) cuts.push_back(cut);
  std::vector<ItemWork> items(8, ItemWork{1, 0, 100, &cuts});
  for (const bool split : {true, false}) {
    for (const auto& pieces : spread_items(items, 8, 4, {0, true, split}, 35)) {
      EXPECT_EQ(pieces.size(), 4u);  // three would be 30, 40, 30
      for (const Piece& piece : pieces) EXPECT_LE(piece.rows, 35);
    }
  }
  for (const auto& pieces : spread_items(items, 8, 4)) EXPECT_EQ(pieces.size(), 1u);
  EXPECT_EQ(parts_within(cuts, 100, 35, 8), 4);
  EXPECT_EQ(parts_within(cuts, 100, 40, 8), 3);
  EXPECT_EQ(parts_within(cuts, 100, 0, 8), 1);
  EXPECT_EQ(parts_within(cuts, 100, 35, 3), std::nullopt);
  EXPECT_EQ(parts_within(cuts, 100, 9, 64), std::nullopt);  // no such cut
  EXPECT_EQ(parts_within({}, 100, 35, 8), std::nullopt);
}

TEST(SpreadItems, GroupsOfLargeWorlds) {
  EXPECT_EQ(balance_group({}, 8), 8);
  EXPECT_EQ(balance_group({}, 512), 256);
  EXPECT_EQ(balance_group({}, 300), 150);
  EXPECT_EQ(balance_group({4, true, true}, 512), 4);
  const Tail tail = heavy_tail(512, 64, 1.2, 1);
  std::vector<ItemWork> items = tail.items;
  for (ItemWork& item : items) item.cuts = &tail.cuts;
  const auto begin = std::chrono::steady_clock::now();
  const auto pieces = spread_items(items, 512, 32);
  const double ms = 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("512 ranks x 64 items: %.1f ms, %zu bytes of works\n", ms, items.size() * sizeof(ItemWork));
  const double ratio = most_over_mean(loads_of(items, pieces, 512));
  std::printf("most over mean load %.3f\n", ratio);
  EXPECT_LE(ratio, 1.1);
}

}  // namespace
}  // namespace loom
