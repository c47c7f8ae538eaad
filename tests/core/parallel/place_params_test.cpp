// Placement of parameters for equal parts: borders between rows, order kept, nothing overlaps, and as little padding as
// the published planner promises on shapes of real models.
#include <gtest/gtest.h>

#include <cstdio>

#include "core/base/random.h"
#include "core/parallel/unit_buffer.h"

namespace loom::test {
namespace {

constexpr int64_t kAlign = 16;

BufferEntry entry(std::vector<int64_t> shape) {
  BufferEntry out;
  out.numel = 1;
  for (const int64_t size : shape) out.numel *= size;
  out.shape = std::move(shape);
  return out;
}

int64_t row_of(const BufferEntry& param) { return param.numel / param.shape[0]; }

void check(const std::vector<BufferEntry>& params, int ranks, int64_t part) {
  EXPECT_EQ(part % kAlign, 0);
  int64_t end = 0;
  for (const BufferEntry& param : params) {
    EXPECT_EQ(param.offset % kAlign, 0);
    EXPECT_GE(param.offset, end);
    end = param.offset + param.numel;
    for (int64_t border = part; border < part * ranks; border += part) {
      if (border > param.offset && border < end) {
        EXPECT_EQ((border - param.offset) % row_of(param), 0);
      }
    }
  }
  EXPECT_LE(end, part * ranks);
}

TEST(PlaceParams, BordersFallBetweenRowsForRandomShapes) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Philox random({seed, Purpose::sample});
    uint64_t at = 0;
    std::vector<BufferEntry> params;
    for (uint64_t n = 1 + random.below(8, at++); n > 0; --n) {
      std::vector<int64_t> shape{1 + static_cast<int64_t>(random.below(40, at++))};
      for (uint64_t dims = random.below(3, at++); dims > 0; --dims)
        shape.push_back(1 + static_cast<int64_t>(random.below(24, at++)));
      params.push_back(entry(shape));
    }
    for (int ranks = 1; ranks <= 8; ++ranks) check(params, ranks, place_params(params, ranks, kAlign));
  }
}

TEST(PlaceParams, APartIsTheSmallestThatWorks) {
  std::vector<BufferEntry> even{entry({8, 16}), entry({8, 16})};
  EXPECT_EQ(place_params(even, 4, kAlign), 64);
  std::vector<BufferEntry> wide{entry({1, 160}), entry({16})};  // one row that no border may cut
  EXPECT_EQ(place_params(wide, 2, kAlign), 160);
}

// Places one after another by trying every aligned candidate, sizes of parts one by one: what the formula must equal.
int64_t searched(std::vector<BufferEntry>& params, int ranks) {
  int64_t total = 0;
  for (const BufferEntry& param : params) total += (param.numel + kAlign - 1) / kAlign * kAlign;
  for (int64_t part = ((total + ranks - 1) / ranks + kAlign - 1) / kAlign * kAlign;; part += kAlign) {
    int64_t at = 0;
    bool fits = true;
    for (BufferEntry& param : params) {
      const auto legal = [&](int64_t place) {
        for (int64_t border = (place / part + 1) * part; border < place + param.numel; border += part) {
          if ((border - place) % row_of(param) != 0) return false;
        }
        return true;
      };
      while (at < part * ranks && !legal(at)) at += kAlign;
      param.offset = at;
      at = (at + param.numel + kAlign - 1) / kAlign * kAlign;
      fits = fits && at <= part * ranks;
    }
    if (fits) return part;
  }
}

TEST(PlaceParams, TheFormulaAgreesWithASearchOverEveryPlace) {
  int64_t padded = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Philox random({seed, Purpose::noise});
    uint64_t at = 0;
    std::vector<BufferEntry> params;
    for (uint64_t n = 1 + random.below(6, at++); n > 0; --n) {
      params.push_back(entry({1 + static_cast<int64_t>(random.below(30, at++)),
                              random.below(3, at++) == 0 ? 1 : 1 + static_cast<int64_t>(random.below(70, at++))}));
    }
    for (int ranks = 2; ranks <= 8; ++ranks) {
      std::vector<BufferEntry> expected = params;
      const int64_t part = searched(expected, ranks);
      ASSERT_EQ(place_params(params, ranks, kAlign), part) << "seed " << seed << ", " << ranks << " ranks";
      for (size_t i = 0; i < params.size(); ++i) ASSERT_EQ(params[i].offset, expected[i].offset);
      padded += part * ranks > expected.back().offset + expected.back().numel + kAlign;
    }
  }
  EXPECT_GT(padded, 100);
}

// Millions of candidates: a search would not end within the time of this test.
TEST(PlaceParams, LargeMatricesAndFusedExperts) {
  std::vector<BufferEntry> experts{entry({32, 2880 * 5760}), entry({32, 2880 * 2880})};
  EXPECT_EQ(place_params(experts, 64, 32), 2880 * 5760);  // an expert is a row
  for (const int ranks : {2, 3, 7, 8, 64}) {
    std::vector<BufferEntry> odd{entry({151937, 3584}), entry({3584})}, rows{entry({2, 1000000001}), entry({3, 77777})};
    check(odd, ranks, place_params(odd, ranks, kAlign));
    check(rows, ranks, place_params(rows, ranks, kAlign));
  }
}

TEST(PlaceParams, ScalarsAndNothing) {
  std::vector<BufferEntry> scalars{entry({}), entry({3, 5}), entry({})}, none;
  const int64_t part = place_params(scalars, 4, kAlign);
  EXPECT_EQ(part, kAlign);
  EXPECT_EQ(scalars[2].offset, 32);
  EXPECT_EQ(place_params(none, 4, kAlign), kAlign);
}

// A block of a 1B model (width 2048, 32 heads over 8 groups, hidden 8192), rows as blocks: padding below 3 %.
TEST(PlaceParams, PaddingOfARealBlockIsSmall) {
  std::vector<BufferEntry> params{entry({2048}), entry({3072, 2048}),  entry({2048, 2048}),
                                  entry({2048}), entry({16384, 2048}), entry({2048, 8192})};
  int64_t used = 0;
  for (const BufferEntry& param : params) used += param.numel;
  for (const int ranks : {2, 3, 4, 7, 8, 64}) {
    const int64_t part = place_params(params, ranks, kAlign);
    check(params, ranks, part);
    const double share = static_cast<double>(part * ranks - used) / static_cast<double>(used);
    std::printf("block of a 1B model on %d ranks: padding %.3f %%\n", ranks, 100 * share);
    EXPECT_LT(share, 0.03) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace loom::test
