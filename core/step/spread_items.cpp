// One group of ranks at a time. Greedy takes the least loaded rank for each item or piece; what that leaves uneven is
// at the end of the list, so a few exchanges between the highest and the lowest rank mend most of it.
#include "core/step/spread_items.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace loom {
namespace {

constexpr int kMostExchanges = 64;
constexpr double kEven = 1.002;  // most over mean load at which exchanges end

class Group {
 public:
  Group(const std::vector<ItemWork>& items, std::vector<std::vector<Piece>>& pieces, int first, int ranks)
      : items_(items), pieces_(pieces), first_(first), loads_(static_cast<size_t>(ranks)), whole_(loads_.size()) {}

  // `mine`: the group's items, longest first.
  void spread(const std::vector<size_t>& mine, int sp, const Balance& balance, int64_t most_rows) {
    most_rows_ = most_rows;
    double total = 0;
    for (const size_t item : mine) total += items_[item].cost;
    mean_ = total / static_cast<double>(loads_.size());
    std::vector<size_t> moving;
    for (const size_t item : mine) {
      if (balance.move || too_long(item) || (balance.split && parts_of(item, sp) > 1)) {
        moving.push_back(item);
      } else {
        give(item, items_[item].home - first_);
      }
    }
    for (size_t rank = 0; rank < loads_.size(); ++rank) heap_.emplace_back(loads_[rank], rank);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    for (const size_t item : moving) {
      const int64_t parts = balance.split ? parts_of(item, sp) : too_long(item) ? least_parts(item, sp) : 1;
      if (parts > 1) {
        divide(item, parts);
      } else {
        const size_t rank = take_least();
        give(item, static_cast<int>(rank));
        put_back(rank);
      }
    }
    if (balance.move) refine();
  }

 private:
  bool too_long(size_t item) const { return most_rows_ > 0 && items_[item].rows > most_rows_; }
  int64_t most_parts(int sp) const { return std::min<int64_t>(sp, static_cast<int64_t>(loads_.size())); }

  // As many as can be where nothing suffices: whoever prepared the item has refused that.
  int64_t least_parts(size_t item, int sp) const {
    const ItemWork& work = items_[item];
    if (!too_long(item) || work.cuts == nullptr || work.cuts->empty()) return 1;
    return parts_within(*work.cuts, work.rows, most_rows_, most_parts(sp)).value_or(most_parts(sp));
  }

  int64_t parts_of(size_t item, int sp) const {
    const ItemWork& work = items_[item];
    if (work.cuts == nullptr || work.cuts->empty()) return 1;
    const int64_t least = least_parts(item, sp);
    if (work.cost <= mean_) return least;
    return std::max(least, static_cast<int64_t>(
                               std::min<double>(std::ceil(work.cost / mean_), static_cast<double>(most_parts(sp)))));
  }

  size_t take_least() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const size_t rank = heap_.back().second;
    heap_.pop_back();
    return rank;
  }
  void put_back(size_t rank) {
    heap_.emplace_back(loads_[rank], rank);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void give(size_t item, int rank) {
    pieces_[item] = {{first_ + rank, 0, items_[item].rows}};
    loads_[static_cast<size_t>(rank)] += items_[item].cost;
    whole_[static_cast<size_t>(rank)].push_back(item);
  }

  // To the least loaded ranks, in the order of their numbers.
  void divide(size_t item, int64_t parts) {
    const ItemWork& work = items_[item];
    std::vector<int64_t> ends = equal_cuts(*work.cuts, work.rows, parts);
    ends.push_back(work.rows);
    std::vector<size_t> ranks;
    for (size_t k = 0; k < ends.size(); ++k) ranks.push_back(take_least());
    std::sort(ranks.begin(), ranks.end());
    int64_t begin = 0;
    for (size_t k = 0; k < ends.size(); ++k) {
      const int64_t rows = ends[k] - begin;
      pieces_[item].push_back({first_ + static_cast<int>(ranks[k]), begin, rows});
      loads_[ranks[k]] += work.cost * (static_cast<double>(rows) / static_cast<double>(work.rows));
      put_back(ranks[k]);
      begin = ends[k];
    }
  }

  // An item of `high`, against nothing or an item of `low`, whose exchange comes nearest to making them equal.
  struct Exchange {
    double moved = 0;
    size_t from = 0, to = 0;  // places in whole_; `to` may be past the end: nothing comes back
  };
  Exchange best_exchange(size_t high, size_t low) const {
    const double wanted = (loads_[high] - loads_[low]) / 2;
    Exchange best;
    const auto consider = [&](size_t from, size_t to, double moved) {
      if (moved > 0 && std::abs(moved - wanted) < std::abs(best.moved - wanted)) best = {moved, from, to};
    };
    for (size_t from = 0; from < whole_[high].size(); ++from) {
      const double mine = items_[whole_[high][from]].cost;
      consider(from, whole_[low].size(), mine);
      for (size_t to = 0; to < whole_[low].size(); ++to) consider(from, to, mine - items_[whole_[low][to]].cost);
    }
    return best;
  }

  void refine() {
    for (int i = 0; i < kMostExchanges; ++i) {
      const auto high = static_cast<size_t>(std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
      const auto low = static_cast<size_t>(std::min_element(loads_.begin(), loads_.end()) - loads_.begin());
      if (loads_[high] <= kEven * mean_) return;
      const Exchange best = best_exchange(high, low);
      if (best.moved <= 0) return;
      const size_t item = whole_[high][best.from];
      whole_[high].erase(whole_[high].begin() + static_cast<std::ptrdiff_t>(best.from));
      if (best.to < whole_[low].size()) {
        const size_t back = whole_[low][best.to];
        whole_[low].erase(whole_[low].begin() + static_cast<std::ptrdiff_t>(best.to));
        loads_[low] -= items_[back].cost;
        give(back, static_cast<int>(high));
      }
      loads_[high] -= items_[item].cost;
      give(item, static_cast<int>(low));
    }
  }

  const std::vector<ItemWork>& items_;
  std::vector<std::vector<Piece>>& pieces_;
  int first_;
  double mean_ = 0;
  int64_t most_rows_ = 0;
  std::vector<double> loads_;                    // by rank within the group
  std::vector<std::vector<size_t>> whole_;       // items that are not divided, by rank
  std::vector<std::pair<double, size_t>> heap_;  // (load, rank), least on top
};

}  // namespace

std::vector<int64_t> equal_cuts(const std::vector<int64_t>& legal, int64_t rows, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t k = 1; k < count && !legal.empty(); ++k) {
    const int64_t target = rows * k / count;
    auto best = std::lower_bound(legal.begin(), legal.end(), target);
    if (best == legal.end() || (best != legal.begin() && target - *(best - 1) <= *best - target)) --best;
    if (out.empty() || *best > out.back()) out.push_back(*best);
  }
  return out;
}

std::optional<int64_t> parts_within(const std::vector<int64_t>& legal, int64_t rows, int64_t most_rows, int64_t parts) {
  for (int64_t count = most_rows > 0 ? (rows + most_rows - 1) / most_rows : 1; count <= parts; ++count) {
    int64_t begin = 0, longest = 0;
    for (const int64_t cut : equal_cuts(legal, rows, count)) {
      longest = std::max(longest, cut - begin);
      begin = cut;
    }
    if (most_rows == 0 || std::max(longest, rows - begin) <= most_rows) return std::max<int64_t>(count, 1);
  }
  return std::nullopt;
}

double cost_of(const ItemMeta& meta) { return meta.cost > 0 ? meta.cost : static_cast<double>(meta.tokens); }

std::vector<std::vector<Piece>> spread_items(const std::vector<ItemWork>& items, int world, int sp,
                                             const Balance& balance, int64_t most_rows) {
  const int ranks = balance_group(balance, world);
  std::vector<std::vector<Piece>> out(items.size());
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a].cost > items[b].cost; });
  std::vector<std::vector<size_t>> groups(static_cast<size_t>(world / ranks));
  for (const size_t item : order) groups[static_cast<size_t>(items[item].home / ranks)].push_back(item);
  for (size_t g = 0; g < groups.size(); ++g)
    Group(items, out, static_cast<int>(g) * ranks, ranks).spread(groups[g], sp, balance, most_rows);
  return out;
}

void add_load(double cost, int64_t rows, const std::vector<Piece>& pieces, std::vector<double>& loads) {
  for (const Piece& piece : pieces)
    loads[static_cast<size_t>(piece.rank)] +=
        rows == 0 ? cost : cost * (static_cast<double>(piece.rows) / static_cast<double>(rows));
}

}  // namespace loom
