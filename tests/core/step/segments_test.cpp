// One segment after another.
#include "core/step/segments.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace loom {
namespace {

TEST(Segments, AppendNumbersSegmentsAndRows) {
  Segments one;
  one.append(2, {5, 0, 0});
  one.append(0, {6, 1, 0});
  one.append(3, {7, 2, 4}, {4, 5, 6}, 9);
  EXPECT_EQ(one.offsets, (std::vector<int64_t>{0, 2, 2, 5}));
  EXPECT_EQ(one.ids, (std::vector<int64_t>{0, 1, 9}));
  EXPECT_EQ(one.positions, (std::vector<int64_t>{0, 1, 4, 5, 6}));
  EXPECT_EQ(one.keys[2].sample, 7u);
  EXPECT_EQ(one.keys[2].first_row, 4);
  EXPECT_TRUE(one.splits.empty());

  Segments two;
  two.position_axes = 2;
  two.append(2, {1, 0, 0});
  two.append(1, {1, 0, 2}, {7, 8});
  EXPECT_EQ(two.positions, (std::vector<int64_t>{0, 0, 0, 1, 7, 8}));
}

TEST(Segments, WrongNumbersAreOurBug) {
  Segments segments;
  EXPECT_THROW(segments.append(-1, {}), InternalError);
  EXPECT_THROW(segments.append(3, {}, {1, 2}), InternalError);
}

}  // namespace
}  // namespace loom
