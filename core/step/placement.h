#pragma once
// From pieces to what each rank holds: local segments with their splits, and runs of rows for the planner of moves.
// Items lie one after another on every rank, in one order that all ranks share; the pieces of an item on one rank in
// the order of their rows. Pieces of an item that follow each other on one rank are one local segment. A piece without
// rows counts as held: its rank learns where the item's other rows lie.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/item_layout.h"
#include "core/step/segments.h"
#include "core/step/step_plan.h"

namespace loom {

struct StreamItem {
  SegmentKey key;     // first_row is not read
  ItemLayout layout;  // a sample of the backbone is one segment
  std::vector<Piece> pieces;
};

// The partitions of one rank. Every partition that any item has exists, if need be without rows.
Partitions local_partitions(const std::vector<StreamItem>& items, int rank);

// The row of its rank's tensor at which each piece of each item starts.
std::vector<std::vector<int64_t>> local_rows(const std::vector<StreamItem>& items, std::string_view partition = "");

// Where the rows of a partition lie: items one after another in global rows, pieces one after another on each rank.
struct PlacedRows {
  int rank = 0;
  int64_t global = 0, local = 0, rows = 0;
};
std::vector<PlacedRows> placed_rows(const std::vector<StreamItem>& items, std::string_view partition);

// The pieces of a list that lie on a rank, with the row of the rank's tensor at which each starts.
struct LocalPiece {
  size_t item = 0;  // index into the list
  Piece piece;
  int64_t local_row = 0;
};
std::vector<LocalPiece> pieces_on(const std::vector<StreamItem>& items, int rank);

}  // namespace loom
