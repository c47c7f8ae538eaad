#pragma once
// Sets of ranks, and the two that a parameter lives on: ranks are numbered with `shard` innermost, so that the pieces
// of one copy lie on neighbouring ranks; replicas are the ranks that hold the same piece.
#include <vector>

namespace loom {

using RankGroup = std::vector<int>;  // world ranks, ascending; every member writes the same list

// The `size` neighbouring ranks that `rank` is one of; size divides world.
RankGroup block_group(int rank, int world, int size);
// The ranks at the same place of every block of `size` ranks.
RankGroup stride_group(int rank, int world, int size);
// All ranks.
RankGroup world_group(int world);
// Index of `rank` within `group`, -1 when it is no member.
int index_in(const RankGroup& group, int rank);

}  // namespace loom
