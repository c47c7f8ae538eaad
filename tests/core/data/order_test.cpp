// The endless order: every epoch covers every sample once, weights are kept, and any position can be asked for at any
// time.
#include "core/data/order.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/base/error.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

using Sample = std::pair<int, int64_t>;

TEST(SampleOrder, WithoutWeightsEveryEpochIsOneListOfAll) {
  const SampleOrder order({{"a", 30, 0}, {"b", 7, 0}, {"c", 1, 0}}, 11, true);
  ASSERT_EQ(order.epoch_size(), 38);
  std::vector<std::vector<Sample>> epochs;
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<Sample> seen;
    std::vector<Sample>& list = epochs.emplace_back();
    for (uint64_t i = 0; i < 38; ++i) {
      const SamplePlace place = order.at(epoch * 38 + i);
      EXPECT_EQ(place.epoch, epoch);
      EXPECT_EQ(order.epoch_of(place.source, epoch * 38 + i), epoch);
      seen.insert({place.source, place.index});
      list.push_back({place.source, place.index});
    }
    EXPECT_EQ(seen.size(), 38u);
    for (const Sample& sample : seen) {
      EXPECT_GE(sample.second, 0);
      EXPECT_LT(sample.second, order.sources()[static_cast<size_t>(sample.first)].size);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  const SampleOrder other({{"a", 30, 0}, {"b", 7, 0}, {"c", 1, 0}}, 12, true);
  int different = 0;
  for (uint64_t i = 0; i < 38; ++i) different += order.at(i).index != other.at(i).index ? 1 : 0;
  EXPECT_GT(different, 10);
}

TEST(SampleOrder, WithoutShuffleItIsTheOrderOfTheRecipe) {
  const SampleOrder order({{"a", 2, 0}, {"b", 3, 0}}, 11, false);
  const std::vector<Sample> expected = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {0, 0}};
  for (uint64_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ((Sample{order.at(i).source, order.at(i).index}), expected[i]);
}

TEST(SampleOrder, WholeNumberWeightsAreExactAndEvenlySpread) {
  const SampleOrder order({{"a", 10, 3}, {"b", 4, 0}, {"c", 100, 2}}, 3, true);  // b counts 1
  ASSERT_TRUE(order.weighted());
  std::map<int, int64_t> count;
  std::map<int, std::map<uint64_t, std::set<int64_t>>> seen;
  for (uint64_t i = 0; i < 6000; ++i) {
    const SamplePlace place = order.at(i);
    EXPECT_EQ(place.epoch, order.epoch_of(place.source, i));
    ++count[place.source];
    EXPECT_TRUE(seen[place.source][place.epoch].insert(place.index).second) << "twice in an epoch";
    if (i % 6 == 5) {
      const int64_t turns = static_cast<int64_t>(i + 1) / 6;
      EXPECT_EQ(count[0], 3 * turns);
      EXPECT_EQ(count[1], turns);
      EXPECT_EQ(count[2], 2 * turns);
    }
  }
  for (auto& [source, epochs] : seen) {
    const uint64_t last = epochs.rbegin()->first;
    for (auto& [epoch, indices] : epochs) {
      if (epoch == last) continue;
      EXPECT_EQ(static_cast<int64_t>(indices.size()), order.sources()[static_cast<size_t>(source)].size);
    }
  }
}

TEST(SampleOrder, OddWeightsAreKeptWithinAThousandthAndTheRarestIsSeen) {
  const SampleOrder order({{"a", 1000, 3.14159}, {"b", 1000, 2.71828}, {"c", 10, 1e-5}}, 3, true);
  std::map<int, double> count;
  constexpr uint64_t kMany = 4096 * 20;
  for (uint64_t i = 0; i < kMany; ++i) count[order.at(i).source] += 1.0 / kMany;
  EXPECT_NEAR(count[0], 3.14159 / 5.85988, 1e-3);
  EXPECT_NEAR(count[1], 2.71828 / 5.85988, 1e-3);
  EXPECT_GT(count[2], 0);
}

TEST(SampleOrder, NothingToReadIsAUsersMistake) {
  EXPECT_HAS(test::line_of<UserError>([] { SampleOrder({}, 1, true); }), "no data source");
  EXPECT_HAS(test::line_of<UserError>([] { SampleOrder({{"train.0", 0, 0}}, 1, true); }), "train.0 has no samples");
}

}  // namespace
}  // namespace loom
