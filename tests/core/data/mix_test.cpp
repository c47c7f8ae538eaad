// A mix that changes: shares of each stage, ramps, and above all that each source goes round as if nothing had changed:
// every sample once per epoch over the border of stages, and of the list that a run without weights is.
#include "core/data/mix.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/data/order.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

using Counts = std::vector<int64_t>;

const std::vector<OrderSource> kSources = {{"photos", 30, 0}, {"text", 700, 0}, {"clothes", 11, 0}};

Counts counts_of(const SampleOrder& order, uint64_t begin, uint64_t end) {
  Counts out(order.sources().size(), 0);
  for (uint64_t i = begin; i < end; ++i) ++out[static_cast<size_t>(order.at(i).source)];
  return out;
}

// Every source: epochs in order, each sample at most once in each, all of them in every epoch but the last.
void expect_whole_epochs(const SampleOrder& order, uint64_t positions, const std::string& what) {
  std::vector<std::map<uint64_t, std::set<int64_t>>> seen(order.sources().size());
  std::vector<uint64_t> latest(order.sources().size(), 0);
  for (uint64_t i = 0; i < positions; ++i) {
    const SamplePlace place = order.at(i);
    const size_t source = static_cast<size_t>(place.source);
    ASSERT_GE(place.index, 0) << what;
    ASSERT_LT(place.index, order.sources()[source].size) << what;
    ASSERT_TRUE(seen[source][place.epoch].insert(place.index).second) << what << ": twice in an epoch, at " << i;
    ASSERT_GE(place.epoch, latest[source]) << what;
    ASSERT_EQ(place.epoch, order.epoch_of(place.source, i)) << what << " at " << i;
    latest[source] = place.epoch;
  }
  for (size_t s = 0; s < seen.size(); ++s) {
    for (const auto& [epoch, indices] : seen[s]) {
      if (epoch == latest[s]) continue;
      EXPECT_EQ(static_cast<int64_t>(indices.size()), order.sources()[s].size) << what << ": source " << s;
    }
    EXPECT_TRUE(seen[s].empty() || seen[s].size() == latest[s] + 1) << what << ": an epoch was left out";
  }
}

std::vector<SamplePlace> places(const SampleOrder& order, uint64_t begin, uint64_t end) {
  std::vector<SamplePlace> out;
  for (uint64_t i = begin; i < end; ++i) out.push_back(order.at(i));
  return out;
}

bool same(const std::vector<SamplePlace>& a, const std::vector<SamplePlace>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SamplePlace& x, const SamplePlace& y) {
    return x.source == y.source && x.index == y.index && x.epoch == y.epoch;
  });
}

TEST(Mix, EveryStageHasItsSharesAndEverySourceGoesOn) {
  const SampleOrder order(kSources, 5, true,
                          mix_segments({{1000, {1, 9, 0}, false}, {3003, {3, 1, 1}, false}, {0, {0, 1, 1}, false}}));
  EXPECT_EQ(counts_of(order, 0, 1000), (Counts{100, 900, 0}));
  EXPECT_EQ(counts_of(order, 1000, 3000), (Counts{1200, 400, 400}));
  EXPECT_EQ(counts_of(order, 3003, 4003), (Counts{0, 500, 500}));
  expect_whole_epochs(order, 6000, "three stages");
  EXPECT_EQ(order.mix().size(), 3u);
  EXPECT_TRUE(order.changes().empty());
}

TEST(Mix, TheFirstStageMayBeWhatTheSourcesSay) {
  const std::vector<MixSegment> mix = mix_segments({{500, {}, false}, {0, {1, 1, 1}, false}});
  const SampleOrder plain(kSources, 5, true), mixed(kSources, 5, true, mix);
  EXPECT_FALSE(mixed.weighted());
  EXPECT_TRUE(same(places(plain, 0, 500), places(mixed, 0, 500)));
  EXPECT_FALSE(same(places(plain, 500, 600), places(mixed, 500, 600)));
  expect_whole_epochs(mixed, 4000, "after the list");
  std::vector<OrderSource> weighted = kSources;
  weighted[0].weight = 7;
  const SampleOrder by_weight(weighted, 5, true), left(weighted, 5, true, mix);
  EXPECT_TRUE(same(places(by_weight, 0, 500), places(left, 0, 500)));
  expect_whole_epochs(left, 4000, "after weights");
}

// The list may be left anywhere: in its first epoch, at the end of one, later.
TEST(Mix, LeavingTheListRepeatsAndSkipsNothing) {
  const uint64_t total = 741;
  for (const bool shuffle : {true, false}) {
    for (const uint64_t at : {uint64_t{1}, uint64_t{300}, total - 1, total, total + 1, 3 * total + 257}) {
      SampleOrder order(kSources, 5, shuffle);
      order.change({at, {2, 5, 1}});
      expect_whole_epochs(order, at + 3 * total, concat("left at ", at));
      order.change({at + 100, {0, 1, 0}});
      order.change({at + 900, {1, 1, 1}});
      expect_whole_epochs(order, at + 3 * total, concat("left at ", at, ", changed again"));
    }
  }
}

TEST(Mix, AChangeDropsWhatWasToComeAndKeepsWhatWas) {
  const std::vector<MixSegment> mix =
      mix_segments({{1000, {1, 9, 1}, false}, {2000, {1, 1, 1}, true}, {0, {9, 1, 1}, false}});
  const SampleOrder before(kSources, 5, true, mix);
  SampleOrder order = before;
  order.change({1500, {0, 3, 1}});
  EXPECT_TRUE(same(places(before, 0, 1500), places(order, 0, 1500)));
  EXPECT_EQ(counts_of(order, 1500, 3500), (Counts{0, 1500, 500}));
  expect_whole_epochs(order, 5000, "changed");
  const SampleOrder once = order;
  order.change({1700, {1, 0, 0}});
  order.change({1600, {0, 0, 1}});
  order.change({1600, {5, 5, 0}});  // the one at 1700 is gone, and the other one at 1600
  EXPECT_EQ(order.changes(), (std::vector<MixSegment>{{1500, {0, 3, 1}}, {1600, {5, 5, 0}}}));
  EXPECT_TRUE(same(places(once, 0, 1600), places(order, 0, 1600)));
  EXPECT_EQ(counts_of(order, 1600, 3600), (Counts{1000, 1000, 0}));
  order.change({0, {1, 1, 0}});
  EXPECT_EQ(counts_of(order, 0, 100), (Counts{50, 50, 0}));
  expect_whole_epochs(order, 3000, "from the beginning");
}

// The same changes, however they came to be: this is what a resume and a rerun rest on.
TEST(Mix, ChangesAndSegmentsMeanTheSame) {
  SampleOrder changed(kSources, 5, true);
  changed.change({333, {2, 1, 1}});
  changed.change({612, {0.1, 0.2, 0.7}});
  const SampleOrder written(kSources, 5, true, {{0, {}}, {333, {2, 1, 1}}, {612, {0.1, 0.2, 0.7}}});
  EXPECT_TRUE(same(places(changed, 0, 3000), places(written, 0, 3000)));
}

TEST(Mix, RampsGoEvenlyFromOneMixToTheNext) {
  const std::vector<MixSegment> mix = mix_segments({{1000, {1, 0}, false}, {9000, {1, 0}, true}, {0, {10, 30}, false}});
  ASSERT_EQ(mix.size(), 2 + kRampPieces);
  EXPECT_EQ(mix[1].begin, 1000u);
  EXPECT_EQ(mix[2].begin, 1250u);
  EXPECT_NEAR(mix[1].weights[1], 0.75 * 0.5 / 32, 1e-12);
  EXPECT_NEAR(mix[32].weights[1], 0.75 * 31.5 / 32, 1e-12);
  EXPECT_EQ(mix[33], (MixSegment{9000, {10, 30}}));
  const SampleOrder order({{"a", 400, 0}, {"b", 900, 0}}, 5, true, mix);
  EXPECT_EQ(counts_of(order, 0, 1000)[1], 0);
  double latest = 0;
  for (uint64_t quarter = 0; quarter < 4; ++quarter) {
    const double share = static_cast<double>(counts_of(order, 1000 + 2000 * quarter, 3000 + 2000 * quarter)[1]) / 2000;
    EXPECT_NEAR(share, 0.75 * (2.0 * static_cast<double>(quarter) + 1) / 8, 0.005);
    EXPECT_GT(share, latest);
    latest = share;
  }
  EXPECT_EQ(counts_of(order, 9000, 13000)[1], 3000);
  expect_whole_epochs(order, 15000, "a ramp");
  // One that is shorter than its pieces, and a source so rare that it has no turn in most of them.
  EXPECT_EQ(mix_segments({{3, {1, 1}, true}, {0, {1, 0}, false}}).size(), 4u);
  const SampleOrder rare({{"a", 400, 0}, {"b", 900, 0}}, 5, true,
                         mix_segments({{32000, {0.001, 1}, true}, {0, {0.002, 1}, false}}));
  EXPECT_NEAR(static_cast<double>(counts_of(rare, 0, 32000)[0]), 48, 10);
}

TEST(Mix, ManyRandomMixesKeepEpochsWhole) {
  const Philox random(RandomKey{.seed = 8});
  uint64_t draw = 0;
  const auto below = [&](uint64_t most) { return random.below(most, draw++); };
  for (int round = 0; round < 60; ++round) {
    std::vector<OrderSource> sources;
    const uint64_t many = 1 + below(4);
    for (uint64_t s = 0; s < many; ++s) sources.push_back({concat("s", s), 1 + static_cast<int64_t>(below(90)), 0});
    if (below(3) == 0) sources[0].weight = 2;
    SampleOrder order(sources, static_cast<uint64_t>(round), below(4) != 0);
    uint64_t position = 0;
    for (uint64_t changes = below(6); changes > 0; --changes) {
      position += below(200);
      MixSegment to{position, std::vector<double>(many, 0)};
      for (double& weight : to.weights) weight = static_cast<double>(below(4));
      to.weights[below(many)] += 1;
      order.change(to);
    }
    expect_whole_epochs(order, position + 500, concat("round ", round));
  }
}

}  // namespace
}  // namespace loom
