// Philox: that every part of a key matters.
#include "core/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace loom {
namespace {

TEST(Random, EveryPartOfTheKeyChangesTheStream) {
  RandomKey base{.seed = 1, .purpose = Purpose::dropout, .site = 2, .step = 3, .sample = 4, .occurrence = 5};
  std::vector<RandomKey> keys(7, base);
  keys[1].seed = 2;
  keys[2].purpose = Purpose::noise;
  keys[3].site = 3;
  keys[4].step = 4;
  keys[5].sample = 5;
  keys[6].occurrence = 6;
  std::set<std::array<uint32_t, 4>> blocks;
  for (const RandomKey& key : keys) blocks.insert(Philox(key).block(0));
  EXPECT_EQ(blocks.size(), keys.size());
  EXPECT_EQ(Philox(base).block(9), Philox(base).block(9));
  EXPECT_NE(Philox(base).block(9), Philox(base).block(10));
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  Philox random({.seed = 7});
  const int count = 40000;
  double mean = 0, square = 0, normal_mean = 0, normal_square = 0;
  for (int i = 0; i < count; ++i) {
    double u = random.uniform(static_cast<uint64_t>(i));
    double n = random.normal(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    mean += u / count;
    square += u * u / count;
    normal_mean += n / count;
    normal_square += n * n / count;
  }
  EXPECT_NEAR(mean, 0.5, 0.01);
  EXPECT_NEAR(square - mean * mean, 1.0 / 12, 0.005);
  EXPECT_NEAR(normal_mean, 0, 0.02);
  EXPECT_NEAR(normal_square, 1, 0.03);
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Philox random({.seed = 9});
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 7000; ++i) {
    uint64_t value = random.below(7, i);
    ASSERT_LT(value, 7u);
    ++counts[value];
  }
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Random, PermutationIsOne) {
  for (uint64_t size : {1u, 2u, 3u, 10u, 255u, 256u, 257u, 1000u}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) {
      uint64_t to = permute_index(Philox({.seed = size}), size, i);
      ASSERT_LT(to, size);
      seen.insert(to);
    }
    EXPECT_EQ(seen.size(), size);
  }
  std::vector<uint64_t> a, b;
  for (uint64_t i = 0; i < 100; ++i) {
    a.push_back(permute_index(Philox({.seed = 1}), 100, i));
    b.push_back(permute_index(Philox({.seed = 2}), 100, i));
  }
  EXPECT_NE(a, b);
}

TEST(Random, NamesAreStable) {
  EXPECT_EQ(hash_name(""),
            14087677454934409008ull);  // FNV-1a, then the finaliser of splitmix64; checkpoints depend on it
  EXPECT_EQ(hash_name("blocks.0.dropout"), 2250714677521000424ull);
  EXPECT_NE(mix_hash(1, 2), mix_hash(2, 1));
}

}  // namespace
}  // namespace loom
