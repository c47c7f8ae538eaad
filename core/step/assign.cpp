// Long items divided, short ones whole, in one pass over items from the longest to the shortest (LSSP together with
// longest-first balancing). Loads are sums in one order, so every rank computes the same bits.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/step/step_plan.h"

namespace loom {
namespace {

// A plugin that says nothing of costs is balanced by rows.
double cost_of(const ItemMeta& meta) { return meta.cost > 0 ? meta.cost : static_cast<double>(meta.tokens); }

// At most count - 1 cuts, ascending, nearest to equal shares.
std::vector<int64_t> equal_cuts(const std::vector<int64_t>& legal, int64_t rows, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t k = 1; k < count; ++k) {
    const int64_t target = rows * k / count;
    auto best = std::lower_bound(legal.begin(), legal.end(), target);
    if (best == legal.end() || (best != legal.begin() && target - *(best - 1) <= *best - target)) --best;
    if (out.empty() || *best > out.back()) out.push_back(*best);
  }
  return out;
}

}  // namespace

void assign_items(const std::vector<Verdict>& samples, std::vector<PlacedItem>& items, int world, int sp) {
  const auto place_of = [&](const PlacedItem& item) -> const ItemPlace& {
    return samples[static_cast<size_t>(item.sample)].items[static_cast<size_t>(item.item)];
  };
  double total = 0;
  std::vector<double> costs;
  for (const PlacedItem& item : items) {
    costs.push_back(cost_of(place_of(item).meta));
    total += costs.back();
  }
  const double mean = total / world;
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return costs[a] > costs[b]; });

  std::set<std::pair<double, int>> ranks;  // (load, rank)
  for (int rank = 0; rank < world; ++rank) ranks.insert({0.0, rank});
  for (const size_t index : order) {
    PlacedItem& item = items[index];
    const ItemPlace& place = place_of(item);
    const double cost = costs[index];
    std::vector<int64_t> ends;
    if (!place.cuts.empty() && cost > mean) {
      const double wanted = std::min<double>(std::ceil(cost / mean), std::min(sp, world));
      ends = equal_cuts(place.cuts, place.meta.tokens, static_cast<int64_t>(wanted));
    }
    ends.push_back(place.meta.tokens);
    // The least loaded ones, in the order of their numbers.
    std::vector<std::pair<int, double>> chosen;
    for (size_t k = 0; k < ends.size(); ++k) {
      const std::pair<double, int> least = *ranks.begin();
      ranks.erase(ranks.begin());
      chosen.emplace_back(least.second, least.first);
    }
    std::sort(chosen.begin(), chosen.end());
    item.pieces.clear();
    int64_t begin = 0;
    for (size_t k = 0; k < ends.size(); ++k) {
      const int64_t rows = ends[k] - begin;
      const double share = ends.size() == 1 ? 1 : static_cast<double>(rows) / static_cast<double>(place.meta.tokens);
      item.pieces.push_back({chosen[k].first, begin, rows});
      ranks.insert({chosen[k].second + cost * share, chosen[k].first});
      begin = ends[k];
    }
  }
}

}  // namespace loom
