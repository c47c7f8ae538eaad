// Philox: that every part of a key matters.
#include "core/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Random, ManyAtOnceAreTheSameNumbers) {
  const Philox random({.seed = 11, .site = 5});
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{1} << 33}) {
    for (const int64_t count : {0, 1, 2, 63, 64, 129, 1000}) {
      std::vector<double> normals(count), uniforms(count);
      random.normals(first, normals.data(), count);
      random.uniforms(first, uniforms.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(normals[i], random.normal(first + i)) << first << " + " << i;
        ASSERT_EQ(uniforms[i], random.uniform(first + i)) << first << " + " << i;
      }
    }
  }
}

// Box-Muller by the C library, in long double.
TEST(Random, NormalNumbersAreWhatTheirBitsSay) {
  const Philox random({.seed = 12});
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto b = random.block(i / 2);
    const auto fraction = [](uint32_t high, uint32_t low) {
      return static_cast<long double>((static_cast<uint64_t>(high) << 20) | (low >> 12)) * 0x1p-52L;
    };
    const long double radius = std::sqrt(-2 * std::log(1 - fraction(b[0], b[1])));
    const long double angle = 6.283185307179586476925286766559L * fraction(b[2], b[3]);
    const long double expected = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    ASSERT_NEAR(random.normal(i), static_cast<double>(expected), 2e-15) << i;
  }
}

// Quantiles, tails, and that neighbours (which share a block) are independent.
TEST(Random, NormalNumbersHaveTheirDistribution) {
  const Philox random({.seed = 13});
  constexpr int64_t kCount = 400000;
  std::vector<double> x(kCount);
  random.normals(0, x.data(), kCount);
  double product = 0, squares = 0, fourth = 0;
  for (int64_t i = 0; i < kCount; i += 2) {
    product += x[i] * x[i + 1];
    squares += (x[i] * x[i] - 1) * (x[i + 1] * x[i + 1] - 1);
  }
  for (const double value : x) fourth += value * value * value * value;
  EXPECT_NEAR(product / (kCount / 2), 0, 0.01);
  EXPECT_NEAR(squares / (kCount / 2), 0, 0.03);
  EXPECT_NEAR(fourth / kCount, 3, 0.05);
  for (const double limit : {-3.0, -1.0, -0.1, 0.0, 0.5, 2.0}) {
    const auto below = std::count_if(x.begin(), x.end(), [&](double value) { return value < limit; });
    EXPECT_NEAR(static_cast<double>(below) / kCount, 0.5 * std::erfc(-limit / std::sqrt(2.0)), 0.004) << limit;
  }
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
