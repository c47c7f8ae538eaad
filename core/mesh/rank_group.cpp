#include "core/mesh/rank_group.h"

#include <algorithm>

#include "core/base/error.h"

namespace loom {

RankGroup block_group(int rank, int world, int size) {
  LOOM_CHECK(size > 0 && world % size == 0 && rank >= 0 && rank < world, "rank ", rank, " of ", world, " in blocks of ",
             size);
  RankGroup out;
  for (int i = 0; i < size; ++i) out.push_back(rank / size * size + i);
  return out;
}

RankGroup stride_group(int rank, int world, int size) {
  LOOM_CHECK(size > 0 && world % size == 0 && rank >= 0 && rank < world, "rank ", rank, " of ", world, " in blocks of ",
             size);
  RankGroup out;
  for (int r = rank % size; r < world; r += size) out.push_back(r);
  return out;
}

RankGroup world_group(int world) { return block_group(0, world, world); }

int index_in(const RankGroup& group, int rank) {
  const auto found = std::lower_bound(group.begin(), group.end(), rank);
  return found != group.end() && *found == rank ? static_cast<int>(found - group.begin()) : -1;
}

}  // namespace loom
