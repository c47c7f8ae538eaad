#pragma once
// Random verdicts, worlds and item layouts; what they are depends on the dice alone.
#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/step/item_layout.h"
#include "core/step/step_plan.h"
#include "tests/support/draws.h"

namespace loom::test {

inline std::vector<int64_t> some_of(std::vector<int64_t> values, Draws& draws) {
  draws.shuffle(values);
  values.resize(static_cast<size_t>(draws.below(static_cast<int64_t>(values.size()) + 1)));
  std::sort(values.begin(), values.end());
  return values;
}

inline std::vector<int64_t> count_up(int64_t from, int64_t to) {
  std::vector<int64_t> out(static_cast<size_t>(std::max<int64_t>(to - from, 0)));
  std::iota(out.begin(), out.end(), from);
  return out;
}

// Pieces of [0, rows) that meet at some of `cuts`, on any ranks, a rank more than once; sometimes with empty ones.
inline std::vector<Piece> random_pieces(int64_t rows, const std::vector<int64_t>& cuts, int world, Draws& draws) {
  std::vector<int64_t> ends;
  if (draws.chance(0.6)) ends = some_of(cuts, draws);
  ends.resize(std::min<size_t>(ends.size(), 5));
  ends.push_back(rows);
  std::vector<Piece> out;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (draws.chance(0.1)) out.push_back({static_cast<int>(draws.below(world)), begin, 0});
    out.push_back({static_cast<int>(draws.below(world)), begin, end - begin});
    begin = end;
  }
  if (draws.chance(0.05)) out.push_back({static_cast<int>(draws.below(world)), begin, 0});
  return out;
}

// `items` names modalities; half of the items may be cut somewhere.
inline Verdict random_verdict(uint64_t index, int64_t longest, const std::vector<std::string>& modalities,
                              Draws& draws) {
  Verdict out;
  out.position = index;
  out.sample = 1000 + index;
  out.name = "train.0#" + std::to_string(index);
  out.tokens = draws.between(1, longest);
  out.supervised = draws.below(out.tokens);
  for (int64_t items = draws.below(4); items > 0; --items) {
    ItemPlace place;
    place.modality = modalities[static_cast<size_t>(draws.below(static_cast<int64_t>(modalities.size())))];
    place.meta.tokens = place.meta.outputs = draws.chance(0.2) ? draws.between(50, 300) : draws.between(1, 30);
    place.meta.cost = draws.chance(0.5) ? 0 : static_cast<double>(place.meta.tokens * place.meta.tokens);
    place.begin = draws.below(out.tokens);
    place.slots = draws.between(0, out.tokens - place.begin);
    if (draws.chance(0.5)) place.cuts = some_of(count_up(1, place.meta.tokens), draws);
    out.items.push_back(std::move(place));
  }
  return out;
}

inline WorldLayout random_world(int most, const std::vector<std::string>& modalities, Draws& draws) {
  WorldLayout out;
  out.world = static_cast<int>(draws.between(1, most));
  do {
    out.backbone.sp = static_cast<int>(draws.between(1, out.world));
  } while (out.world % out.backbone.sp != 0);
  for (const std::string& modality : modalities) {
    if (draws.chance(0.7)) out.encoders[modality].sp = static_cast<int>(draws.between(1, out.world));
  }
  return out;
}

// An item with partitions of every kind: windows of several lengths, positions or none, a row count of its own in
// proportion ("half") or said per cut ("class": one row more), and cuts listed or not.
inline ItemLayout random_layout(int64_t rows, Draws& draws) {
  const auto random_lengths = [&](int64_t left) {
    std::vector<int64_t> out;
    while (left > 0) {
      out.push_back(std::min(left, draws.between(0, 6)));
      left -= out.back();
    }
    return out;
  };
  ItemLayout out = whole_item(rows);
  if (draws.chance(0.5)) out.partitions[""].lengths = random_lengths(rows);
  if (draws.chance(0.5)) {
    ItemPartition& windows = out.partitions["windows"];
    windows.lengths = random_lengths(rows);
    windows.position_axes = 2;
    for (int64_t i = 0; i < 2 * rows; ++i) windows.positions.push_back(draws.below(100));
  }
  if (rows % 2 == 0 && draws.chance(0.5)) out.partitions["half"].lengths = random_lengths(rows / 2);
  if (draws.chance(0.5)) out.cuts = some_of(count_up(1, rows), draws);
  if (!out.cuts.empty() && draws.chance(0.5)) {
    ItemPartition& one_more = out.partitions["class"];
    one_more.lengths = random_lengths(rows + 1);
    for (const int64_t cut : out.cuts) one_more.cut_rows.push_back(cut + 1);
  }
  return out;
}

}  // namespace loom::test
