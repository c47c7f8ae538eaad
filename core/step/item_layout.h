#pragma once
// What an encoder says about one item (a picture, clip or sound) from its metadata alone: how many rows it becomes,
// which rows attend to each other (named partitions), in which order, at which positions, and where it may be cut.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace loom {

struct ItemMeta {
  int64_t tokens = 0;   // rows that enter the encoder
  int64_t outputs = 0;  // rows that leave it; a connector with merge factor m turns them into outputs / m LLM slots
  double cost = 0;      // forward FLOPs, for balancing
  std::vector<int64_t> grid;  // (t, y, x) or whatever the encoder needs in layout()
};

struct ItemPartition {
  std::vector<int64_t> lengths;    // of its segments, in row order
  std::vector<int64_t> positions;  // rows x position_axes; empty = 0, 1, 2, ... within each segment
  int64_t position_axes = 1;
};

struct ItemLayout {
  // "" is the default partition; its rows are the item's tokens. Other names may have row counts of their own
  // (merged grids, pooled rows); the sum of lengths says how many.
  std::map<std::string, ItemPartition, std::less<>> partitions;
  std::vector<int64_t> permutation;  // outputs leave in this order: natural[permutation[i]] = row i; empty = natural
  std::vector<int64_t> cuts;         // legal cut points in default-partition rows; empty = never split
};

// One segment of all tokens at positions 0, 1, 2, ...; cut nowhere.
ItemLayout whole_item(int64_t tokens);

}  // namespace loom
