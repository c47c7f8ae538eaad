#pragma once
// Tensor parallelism: split weights of a component are divided over a tensor group, `tp` neighbouring ranks. Between
// units every rank has rows of its own, as without it; a layer whose weight is split by column gathers the group's rows
// first, and one split by row sums its partial results and leaves every rank its rows (sequence parallelism of
// Korthikanti et al., 2022). Between the two a rank has all rows of its group and its share of columns, in which a head
// is whole with its KV group; attention over several groups is between the ranks of one column.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/mesh/box.h"
#include "core/nn/declare.h"
#include "core/reshard/redistribute.h"
#include "core/step/placement.h"
#include "core/step/tensor_group.h"

namespace loom {

// The parts of the global tensor that this rank holds, in the order in which they follow each other in dimension 0
// (column) or 1 (row). InternalError when there are fewer blocks than ranks.
std::vector<Box> split_boxes(const ParamDecl& param, const TensorGroup& group);

// The most ranks that every split parameter of a component leaves with a block, and whose limit that is. 0 = nothing is
// split.
struct SplitLimit {
  int64_t ranks = 0;
  std::string param;  // "backbone.blocks.0.attention.qkv.weight#k"
};
SplitLimit split_limit(const Declarations& declarations);

// Of a rank that has fewest of the heads of a layer that has fewest.
AttentionHeads fewest_heads(const Declarations& declarations, int tensor_ranks);

// The rows of a tensor group.
struct GroupRows {
  Segments segments;  // on this rank and on those of its column, each of which stands for its group
  Route route;        // a rank's own rows -> the group's; elements are rows
  int64_t own_rows = 0;
};
using GroupPartitions = std::map<std::string, GroupRows, std::less<>>;  // by name of the partition; as in context.h
GroupPartitions group_partitions(const std::vector<StreamItem>& items, int rank, int tensor_ranks);

}  // namespace loom
