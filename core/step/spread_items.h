#pragma once
// Who encodes which item of a microbatch: long items divided, short ones whole, in one pass from the longest to the
// shortest (LSSP of MegaScale-Omni, arXiv 2605.08962, together with longest-first greedy), then refined by exchanges.
// Pure arithmetic in one order, so every rank computes the same bits.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/step/step_plan.h"

namespace loom {

struct ItemWork {
  double cost = 0;  // any unit, the same for all
  int home = 0;     // the rank that wants its embeddings
  int64_t rows = 0;
  const std::vector<int64_t>* cuts = nullptr;  // rows at which it may be divided, ascending; null = nowhere
};

// A plugin that says nothing of costs is balanced by rows.
double cost_of(const ItemMeta& meta);

// Pieces of each item. Items stay within their home's group. An item that costs more than its group's mean load, or has
// more than `most_rows` rows (0 = any number), is cut over up to `sp` ranks, at the legal rows nearest to equal shares.
std::vector<std::vector<Piece>> spread_items(const std::vector<ItemWork>& items, int world, int sp,
                                             const Balance& balance = {}, int64_t most_rows = 0);

// At most count - 1 of these legal cuts, ascending, nearest to equal shares.
std::vector<int64_t> equal_cuts(const std::vector<int64_t>& legal, int64_t rows, int64_t count);
// In how many parts such cuts must divide an item so that none has more than `most_rows` rows; nothing when `parts` do
// not suffice.
std::optional<int64_t> parts_within(const std::vector<int64_t>& legal, int64_t rows, int64_t most_rows, int64_t parts);

// Adds an item's cost to the loads of its pieces' ranks; a piece has its share of the rows.
void add_load(double cost, int64_t rows, const std::vector<Piece>& pieces, std::vector<double>& loads);

}  // namespace loom
