// Blocks and strides against their definition: blocks partition the world, strides meet every block once.
#include "core/mesh/rank_group.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace loom {
namespace {

TEST(RankGroup, BlocksAreNeighboursAndStridesCrossThem) {
  EXPECT_EQ(block_group(5, 8, 4), (RankGroup{4, 5, 6, 7}));
  EXPECT_EQ(stride_group(5, 8, 4), (RankGroup{1, 5}));
  EXPECT_EQ(world_group(3), (RankGroup{0, 1, 2}));
  EXPECT_EQ(block_group(2, 3, 1), (RankGroup{2}));
  EXPECT_EQ(stride_group(2, 3, 1), (RankGroup{0, 1, 2}));
  EXPECT_EQ(stride_group(2, 3, 3), (RankGroup{2}));
}

TEST(RankGroup, EveryRankIsInItsGroupsAndAllMembersWriteTheSame) {
  int groups = 0;
  for (int world = 1; world <= 12; ++world) {
    for (int size = 1; size <= world; ++size) {
      if (world % size != 0) continue;
      for (int rank = 0; rank < world; ++rank) {
        const RankGroup block = block_group(rank, world, size), stride = stride_group(rank, world, size);
        EXPECT_EQ(static_cast<int>(block.size()), size);
        EXPECT_EQ(static_cast<int>(stride.size()), world / size);
        for (const int member : block) EXPECT_EQ(block_group(member, world, size), block);
        for (const int member : stride) EXPECT_EQ(stride_group(member, world, size), stride);
        int common = 0;
        for (const int member : block) common += index_in(stride, member) >= 0 ? 1 : 0;
        EXPECT_EQ(common, 1);
        EXPECT_EQ(block[static_cast<size_t>(index_in(block, rank))], rank);
        EXPECT_EQ(stride[static_cast<size_t>(index_in(stride, rank))], rank);
        ++groups;
      }
    }
  }
  EXPECT_GT(groups, 200);
}

TEST(RankGroup, IndexOfAStranger) {
  EXPECT_EQ(index_in({1, 4, 6}, 4), 1);
  EXPECT_EQ(index_in({1, 4, 6}, 5), -1);
  EXPECT_EQ(index_in({1, 4, 6}, 7), -1);
  EXPECT_EQ(index_in({}, 0), -1);
}

TEST(RankGroup, SizesMustDivideTheWorld) {
  EXPECT_THROW(block_group(0, 4, 3), InternalError);
  EXPECT_THROW(stride_group(0, 4, 0), InternalError);
  EXPECT_THROW(block_group(4, 4, 2), InternalError);
}

}  // namespace
}  // namespace loom
