#pragma once
// What an encoder says about one item (a picture, clip or sound) from its metadata alone: how many rows it becomes,
// which rows attend to each other (named partitions), in which order, at which positions, and where it may be cut.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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
  // Its row at each of ItemLayout::cuts. Empty = in proportion to the item's rows: with half as many rows, row 4 of the
  // item is row 2 here, and row 3 is no place to cut.
  std::vector<int64_t> cut_rows;

  int64_t rows() const;
};

struct ItemLayout {
  // "" is the default partition; its rows are the item's tokens. Other names may have row counts of their own
  // (merged grids, pooled rows, one more for a class token); the sum of lengths says how many.
  std::map<std::string, ItemPartition, std::less<>> partitions;
  std::vector<int64_t> permutation;  // outputs leave in this order: natural[permutation[i]] = row i; empty = natural
  // Legal cuts, in rows of the default partition, ascending, strictly inside. Empty = wherever every partition has a
  // row for the cut, which is right for an encoder that mixes rows only through the services of its context.
  std::vector<int64_t> cuts;
  bool whole = false;  // never cut
};

// One segment of all tokens at positions 0, 1, 2, ...
ItemLayout whole_item(int64_t tokens);

// The row of a partition at a cut of the item (0 and the item's rows are cuts, too); -1 when it has none.
int64_t row_at(const ItemLayout& layout, std::string_view partition, int64_t cut);
// May the item be cut at this row? Every partition must have a row for it.
bool legal_cut(const ItemLayout& layout, int64_t row);
// All legal cuts at which the rows of the partition `outputs` divide by `merge`, ascending.
std::vector<int64_t> legal_cuts(const ItemLayout& layout, std::string_view outputs = "", int64_t merge = 1);
// What is wrong with a layout, in a few words ("cut 9 lies outside the item's 8 rows"); empty when nothing is.
std::string layout_mistake(const ItemLayout& layout, const ItemMeta& meta);
// The same for the partition of which an encoder's outputs are rows; an item that may be cut needs one.
std::string outputs_mistake(const ItemLayout& layout, const ItemMeta& meta, std::string_view outputs);

}  // namespace loom
