#pragma once
// Who reads what, when several ranks want the same: a box is read once, in bands of rows, one per rank that wants it,
// and the bands are exchanged (ByteCheckpoint's elimination of redundant reads).
#include <optional>
#include <vector>

#include "core/checkpoint/part.h"
#include "core/mesh/rank_group.h"

namespace loom {

// A box that this rank wants.
struct WantedBox {
  TensorPart part;
  RankGroup ranks;  // that want the same box; this one is among them
  size_t turn = 0;  // its place among all boxes of all ranks: whoever begins takes turns
};

// In an order that is the same on all ranks. InternalError when a rank wants a box twice.
std::vector<WantedBox> plan_load(const std::vector<std::vector<TensorPart>>& wanted_by_rank, int rank);

// The rows of the box that member i of its ranks reads, for every i; nothing for some where rows are fewer than ranks.
std::vector<std::optional<Box>> bands(const WantedBox& wanted);

}  // namespace loom
