// Packs by cost: every sample once, within the budget, in no more microbatches than first fit needs; and how even they
// are, against brute force on small steps and against first fit on heavy tails.
#include "core/step/pack_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "core/base/random.h"
#include "core/step/imbalance.h"

namespace loom {
namespace {

Verdict sample_of(int64_t tokens, double cost = 0) {
  Verdict out;
  out.tokens = tokens;
  out.cost = cost;
  return out;
}

double quadratic(int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  return 4000 * n + n * n;
}

// Lengths log-normal, sigma 1.2.
std::vector<Verdict> heavy_tails(int64_t count, uint64_t seed, int64_t longest) {
  const Philox random({seed, Purpose::sample});
  std::vector<Verdict> out;
  for (int64_t i = 0; i < count; ++i) {
    const double length = 300 * std::exp(1.2 * random.normal(static_cast<uint64_t>(i)));
    const int64_t tokens = std::clamp<int64_t>(std::llround(length), 1, longest);
    out.push_back(sample_of(tokens, quadratic(tokens)));
    out.back().sample = static_cast<uint64_t>(i);
  }
  return out;
}

WorldLayout lanes_of(int lanes, bool pack = true) {
  WorldLayout out;
  out.world = lanes;
  out.balance.pack = pack;
  return out;
}

TEST(PackSamples, EverySampleOnceWithinTheBudget) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Philox random({seed, Purpose::sample});
    const int lanes = static_cast<int>(1 + random.below(8, 900));
    const std::vector<Verdict> samples = heavy_tails(static_cast<int64_t>(random.below(60, 901)), seed, 2000);
    const int64_t budget = static_cast<int64_t>(2000 + random.below(4000, 902));
    const auto packs = pack_evenly(samples, budget, lanes_of(lanes));
    const auto first = pack_samples(samples, budget);
    const auto microbatches = [&](size_t count) { return (count + static_cast<size_t>(lanes) - 1) / lanes; };
    EXPECT_EQ(microbatches(packs.size()), microbatches(first.size())) << seed;
    std::vector<int> seen(samples.size());
    for (const std::vector<int64_t>& pack : packs) {
      int64_t tokens = 0;
      for (const int64_t sample : pack) {
        tokens += samples[static_cast<size_t>(sample)].tokens;
        ++seen[static_cast<size_t>(sample)];
      }
      EXPECT_LE(tokens, budget) << seed;
      EXPECT_TRUE(std::is_sorted(pack.begin(), pack.end())) << seed;
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(samples.size())) << seed;
  }
}

// The largest sum over lanes that any assignment of these few samples must have.
double least_possible(const std::vector<double>& costs, size_t lanes) {
  size_t ways = 1;
  for (size_t i = 0; i < costs.size(); ++i) ways *= lanes;
  double best = 1e300;
  for (size_t way = 0; way < ways; ++way) {
    std::vector<double> loads(lanes);
    size_t rest = way;
    for (const double cost : costs) {
      loads[rest % lanes] += cost;
      rest /= lanes;
    }
    best = std::min(best, *std::max_element(loads.begin(), loads.end()));
  }
  return best;
}

TEST(PackSamples, SmallStepsAreNearTheBest) {
  double worst = 1;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::vector<Verdict> samples = heavy_tails(9, seed, 5000);
    std::vector<double> costs;
    for (const Verdict& sample : samples) costs.push_back(sample.cost);
    std::vector<double> loads;
    for (const auto& pack : pack_evenly(samples, 1 << 20, lanes_of(3))) {
      loads.push_back(0);
      for (const int64_t sample : pack) loads.back() += samples[static_cast<size_t>(sample)].cost;
    }
    worst = std::max(worst, *std::max_element(loads.begin(), loads.end()) / least_possible(costs, 3));
  }
  std::cout << "  3 lanes, 9 samples, 200 seeds: at most " << worst << " of the best\n";
  EXPECT_LE(worst, 1.08);
}

// No sample is longer than a mean pack: those that are no packing can even out.
TEST(PackSamples, HeavyTailsLieMoreEvenlyThanInTurn) {
  std::vector<double> even, in_turn;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const std::vector<Verdict> samples = heavy_tails(8 * 32, seed, 3000);
    for (const bool pack : {true, false}) {
      const StepPlan plan = make_step_plan(1, samples, 16384, 0, lanes_of(8, pack));
      ASSERT_NO_THROW(check_plan(plan));
      (pack ? even : in_turn).push_back(imbalance_of(plan).at("backbone"));
    }
  }
  const auto p95 = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() * 95 / 100];
  };
  std::cout << "  8 lanes, most over mean of the backbone, p95: by cost " << p95(even) << ", in turn " << p95(in_turn)
            << "\n";
  EXPECT_LE(p95(even), 1.05);
  EXPECT_GT(p95(in_turn), 1.15);
}

// Items that stay in their lane count as much as the text; items that may go anywhere hardly do.
TEST(PackSamples, ItemsThatStayCount) {
  std::vector<Verdict> samples;
  for (int i = 0; i < 8; ++i) {
    samples.push_back(sample_of(100, 100));
    ItemPlace item;
    item.modality = "image";
    item.meta = {10, 10, i < 4 ? 1000.0 : 1.0, {}};
    item.slots = 10;
    samples.back().items.push_back(item);
  }
  WorldLayout layout = lanes_of(4);
  layout.balance.move = layout.balance.split = false;
  const StepPlan plan = make_step_plan(1, samples, 200, 0, layout);
  EXPECT_EQ(plan.microbatches.size(), 1u);
  EXPECT_DOUBLE_EQ(imbalance_of(plan).at("encoders.image"), 1);
  EXPECT_DOUBLE_EQ(imbalance_of(plan).at("backbone"), 1);
}

TEST(PackSamples, ThousandsOfSamples) {
  const std::vector<Verdict> samples = heavy_tails(512 * 64, 1, 8192);
  const auto begin = std::chrono::steady_clock::now();
  const auto packs = pack_evenly(samples, 65536, lanes_of(512));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << "  512 lanes x 64 samples: " << 1e3 * seconds << " ms, " << packs.size() << " packs\n";
  EXPECT_EQ(packs.size() % 512, 0u);
}

}  // namespace
}  // namespace loom
