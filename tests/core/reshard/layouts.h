#pragma once
// Random layouts, and what a plan says element by element.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/reshard/redistribute.h"

namespace loom::test {

// A stream of random numbers with a place.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(RandomKey{.seed = seed}) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_.below(static_cast<uint32_t>(n), at_++)); }
  bool chance(int64_t one_in) { return below(one_in) == 0; }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  Philox random_;
  uint64_t at_ = 0;
};

// Where an element lies: rank and place in its memory.
using Place = std::pair<int, int64_t>;

// Calls visit(global coordinates, local element) for every element of a box.
template <class Visit>
void each_element(const OwnedBox& owned, const Visit& visit) {
  if (owned.box.empty()) return;
  std::vector<int64_t> at(owned.box.size.size(), 0);
  for (;;) {
    std::vector<int64_t> global = at;
    int64_t local = owned.offset;
    for (size_t d = 0; d < at.size(); ++d) {
      global[d] += owned.box.offset[d];
      local += at[d] * owned.stride[d];
    }
    visit(global, local);
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == owned.box.size[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

// What the rule says: (source place, destination place) of every destination element.
inline std::vector<std::pair<Place, Place>> expected_moves(const Layout& source, const Layout& destination) {
  std::map<std::vector<int64_t>, std::vector<Place>> owners;
  for (const OwnedBox& owned : source.boxes) {
    each_element(owned, [&](const auto& global, int64_t local) { owners[global].emplace_back(owned.rank, local); });
  }
  std::vector<std::pair<Place, Place>> out;
  for (const OwnedBox& owned : destination.boxes) {
    each_element(owned, [&](const auto& global, int64_t local) {
      const std::vector<Place>& all = owners.at(global);
      const auto own = std::find_if(all.begin(), all.end(), [&](const Place& p) { return p.first == owned.rank; });
      out.emplace_back(own == all.end() ? all.front() : *own, Place(owned.rank, local));
    });
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The same of a plan.
inline std::vector<std::pair<Place, Place>> planned_moves(const std::vector<Transfer>& transfers) {
  std::vector<std::pair<Place, Place>> out;
  for (const Transfer& transfer : transfers) {
    std::vector<int64_t> from, to;
    const auto list = [](const Patch& patch, std::vector<int64_t>& places) {
      each_element({0, {std::vector<int64_t>(patch.size.size(), 0), patch.size}, patch.offset, patch.stride},
                   [&](const auto&, int64_t local) { places.push_back(local); });
    };
    list(transfer.from, from);
    list(transfer.to, to);
    for (size_t i = 0; i < from.size(); ++i) {
      out.emplace_back(Place(transfer.source, from[i]), Place(transfer.destination, to.at(i)));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Elements of each rank's memory.
inline std::vector<int64_t> memory_sizes(const Layout& layout, int world) {
  std::vector<int64_t> out(static_cast<size_t>(world), 0);
  for (const OwnedBox& owned : layout.boxes) {
    each_element(owned, [&](const auto&, int64_t local) {
      int64_t& size = out[static_cast<size_t>(owned.rank)];
      size = std::max(size, local + 1);
    });
  }
  return out;
}

// Puts boxes one after another into their ranks' memories, each row-major, some with a gap before or between rows.
class Memories {
 public:
  explicit Memories(int world) : next_(static_cast<size_t>(world), 0) {}

  OwnedBox place(int rank, Box box, Dice& dice) {
    OwnedBox out{rank, std::move(box), 0, {}};
    out.stride.assign(out.box.size.size(), 1);
    for (size_t d = out.stride.size(); d-- > 1;) {
      out.stride[d - 1] = out.stride[d] * std::max<int64_t>(out.box.size[d], 1) + (dice.chance(3) ? dice.below(3) : 0);
    }
    int64_t& next = next_[static_cast<size_t>(rank)];
    out.offset = next + (dice.chance(4) ? dice.below(4) : 0);
    next = out.offset;
    if (!out.box.empty()) next += out.stride[0] * out.box.size[0];
    return out;
  }

 private:
  std::vector<int64_t> next_;
};

// Cuts the whole into boxes, by random cuts of random boxes.
inline std::vector<Box> random_boxes(const std::vector<int64_t>& shape, int64_t cuts, Dice& dice) {
  std::vector<Box> out{whole_box(shape)};
  for (int64_t i = 0; i < cuts; ++i) {
    const auto which = static_cast<size_t>(dice.below(static_cast<int64_t>(out.size())));
    const auto d = static_cast<size_t>(dice.below(static_cast<int64_t>(shape.size())));
    const int64_t first = dice.below(out[which].size[d] + 1);
    Box rest = out[which];
    out[which].size[d] = first;
    rest.offset[d] += first;
    rest.size[d] -= first;
    out.push_back(rest);
  }
  return out;
}

// Boxes that cover the whole, on random ranks; with `again`, some parts lie on further ranks too.
inline Layout random_layout(const std::vector<int64_t>& shape, int world, bool again, Dice& dice) {
  Layout out{shape, {}};
  Memories memories(world);
  std::vector<Box> boxes = random_boxes(shape, dice.below(8), dice);
  if (again) {
    for (const Box& box : random_boxes(shape, dice.below(4), dice)) {
      if (dice.chance(2)) boxes.push_back(box);
    }
  }
  dice.shuffle(boxes);
  for (const Box& box : boxes) out.boxes.push_back(memories.place(static_cast<int>(dice.below(world)), box, dice));
  return out;
}

// Rows as components have them: items cut into pieces, each piece on a rank, some ranks empty, and, when `permuted`,
// rows in a random order within each piece.
inline std::vector<RowRun> random_runs(int64_t rows, int world, bool permuted, Dice& dice) {
  std::vector<int> ranks;
  for (int r = 0; r < world; ++r) {
    if (!dice.chance(4)) ranks.push_back(r);
  }
  if (ranks.empty()) ranks.push_back(static_cast<int>(dice.below(world)));
  std::vector<int64_t> next(static_cast<size_t>(world), 0);
  std::vector<RowRun> pieces, out;
  for (int64_t at = 0; at < rows;) {
    const int64_t count = std::min(rows - at, 1 + dice.below(9));
    pieces.push_back({ranks[static_cast<size_t>(dice.below(static_cast<int64_t>(ranks.size())))], at, 0, count});
    at += count;
  }
  dice.shuffle(pieces);
  for (RowRun& piece : pieces) {
    int64_t& local = next[static_cast<size_t>(piece.rank)];
    piece.local = local;
    local += piece.rows;
    if (!permuted) {
      out.push_back(piece);
      continue;
    }
    std::vector<int64_t> order;
    for (int64_t i = 0; i < piece.rows; ++i) order.push_back(i);
    dice.shuffle(order);
    for (int64_t i = 0; i < piece.rows; ++i) {
      out.push_back({piece.rank, piece.global + order[static_cast<size_t>(i)], piece.local + i, 1});
    }
  }
  return out;
}

}  // namespace loom::test
