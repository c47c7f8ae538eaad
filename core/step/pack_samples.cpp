// Longest first into the bin that becomes least uneven, then exchanges. Costs are shares of the mean, so that FLOPs of
// encoders and backbone compare; how uneven bins are is the sum of squares over all kinds of cost.
#include "core/step/pack_samples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/step/spread_items.h"

namespace loom {
namespace {

using Packs = std::vector<std::vector<int64_t>>;
using Costs = std::vector<double>;  // by kind: the backbone's, then each modality's

constexpr double kFree = 1e-4;  // weight of items that may be encoded in another lane
constexpr int kMostRounds = 256;
constexpr double kEven = 1.004;  // heaviest over even pack, in sums of squares, at which exchanges end
constexpr size_t kLightest = 8;  // bins that a sample, or an exchange, is tried with
constexpr double kGain = 1e-9;   // of the sum of squares; smaller ones are rounding

class Packer {
 public:
  Packer(const std::vector<Verdict>& samples, int64_t budget, const WorldLayout& layout, size_t bins)
      : samples_(samples), budget_(budget), costs_(samples.size()), packs_(bins), filled_(bins) {
    const int group = balance_group(layout.balance, layout.world);
    const bool at_home = !layout.balance.move || group <= layout.lane_ranks();
    std::map<std::string, size_t> kinds;
    for (const Verdict& sample : samples) {
      for (const ItemPlace& item : sample.items) kinds.emplace(item.modality, 0);
    }
    size_t next = 1;
    for (auto& [modality, kind] : kinds) kind = next++;
    Costs totals(next);
    for (size_t s = 0; s < samples.size(); ++s) {
      costs_[s].resize(next);
      costs_[s][0] = cost_of(samples[s]);
      for (const ItemPlace& item : samples[s].items) costs_[s][kinds[item.modality]] += cost_of(item.meta);
      for (size_t k = 0; k < next; ++k) totals[k] += costs_[s][k];
    }
    for (size_t k = 0; k < next; ++k) {
      const double weight = std::sqrt(k == 0 || at_home ? 1 : kFree);
      const double mean = totals[k] / static_cast<double>(bins);
      if (mean > 0) even_ += weight * weight;
      for (Costs& costs : costs_) costs[k] = mean > 0 ? costs[k] * weight / mean : 0;
    }
    loads_.assign(bins, Costs(next));
    for (size_t bin = 0; bin < bins; ++bin) by_weight_.emplace(0.0, bin);
  }

  // False where a sample finds no room.
  bool longest_first() {
    std::vector<size_t> order(samples_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<double> sums;
    for (const Costs& costs : costs_) sums.push_back(std::accumulate(costs.begin(), costs.end(), 0.0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return sums[a] != sums[b] ? sums[a] > sums[b] : samples_[a].tokens > samples_[b].tokens;
    });
    for (const size_t sample : order) {
      std::optional<size_t> best;
      double least = 0;
      size_t tried = 0;
      for (auto at = by_weight_.begin(); at != by_weight_.end() && tried < kLightest; ++at) {
        const size_t bin = at->second;
        if (filled_[bin] + samples_[sample].tokens > budget_) continue;
        ++tried;
        const double more = growth(bin, costs_[sample]);
        if (best.has_value() && more >= least) continue;
        best = bin;
        least = more;
      }
      if (!best.has_value()) return false;
      put(sample, *best);
    }
    return true;
  }

  void take(const Packs& packs) {
    for (size_t bin = 0; bin < packs.size(); ++bin) {
      for (const int64_t sample : packs[bin]) put(static_cast<size_t>(sample), bin);
    }
  }

  // Moves and exchanges between the heaviest bin and a light one while they gain.
  void refine() {
    for (int round = 0; round < kMostRounds; ++round) {
      const auto [most, high] = *by_weight_.rbegin();
      if (most <= kEven * even_) return;
      Exchange best;
      auto at = by_weight_.begin();
      for (size_t i = 0; i < kLightest && at->second != high; ++i, ++at) consider(high, at->second, best);
      if (best.gain <= kGain) return;
      apply(high, best);
    }
  }

  // In microbatches of `lanes` packs that are nearly alike, each with its samples in order.
  Packs packs(size_t lanes) && {
    std::vector<size_t> order(packs_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return loads_[a][0] > loads_[b][0]; });
    Packs out;
    for (const size_t bin : order) {
      std::sort(packs_[bin].begin(), packs_[bin].end());
      out.push_back(std::move(packs_[bin]));
    }
    // Microbatches in the order of their first sample, as people expect; empty packs last.
    std::vector<Packs> rows;
    for (size_t begin = 0; begin < out.size(); begin += lanes) {
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(begin);
      rows.emplace_back(first, first + static_cast<std::ptrdiff_t>(std::min(lanes, out.size() - begin)));
    }
    const auto first_of = [](const Packs& row) {
      int64_t first = INT64_MAX;
      for (const auto& pack : row) first = pack.empty() ? first : std::min(first, pack.front());
      return first;
    };
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const Packs& a, const Packs& b) { return first_of(a) < first_of(b); });
    out.clear();
    for (Packs& row : rows) {
      for (auto& pack : row) out.push_back(std::move(pack));
    }
    return out;
  }

 private:
  struct Exchange {
    double gain = 0;
    size_t low = 0;
    size_t from = 0, to = 0;  // places in the packs; `to` may be past the end: nothing comes back
  };

  double growth(size_t bin, const Costs& more) const {
    double out = 0;
    for (size_t k = 0; k < more.size(); ++k) out += more[k] * (2 * loads_[bin][k] + more[k]);
    return out;
  }

  void put(size_t sample, size_t bin) {
    packs_[bin].push_back(static_cast<int64_t>(sample));
    add(bin, sample, 1);
  }

  void remove(size_t bin, size_t place) {
    const auto sample = static_cast<size_t>(packs_[bin][place]);
    packs_[bin].erase(packs_[bin].begin() + static_cast<std::ptrdiff_t>(place));
    add(bin, sample, -1);
  }

  void add(size_t bin, size_t sample, int sign) {
    by_weight_.erase({weight(bin), bin});
    filled_[bin] += sign * samples_[sample].tokens;
    for (size_t k = 0; k < loads_[bin].size(); ++k) loads_[bin][k] += sign * costs_[sample][k];
    by_weight_.emplace(weight(bin), bin);
  }

  double weight(size_t bin) const {
    double out = 0;
    for (const double load : loads_[bin]) out += load * load;
    return out;
  }

  void consider(size_t high, size_t low, Exchange& best) const {
    const double before = weight(high) + weight(low);
    const auto try_one = [&](size_t from, size_t to) {
      const auto mine = static_cast<size_t>(packs_[high][from]);
      const bool back = to < packs_[low].size();
      const size_t theirs = back ? static_cast<size_t>(packs_[low][to]) : 0;
      const int64_t tokens = samples_[mine].tokens - (back ? samples_[theirs].tokens : 0);
      if (filled_[low] + tokens > budget_ || filled_[high] - tokens > budget_) return;
      double after = 0;
      for (size_t k = 0; k < loads_[high].size(); ++k) {
        const double moved = costs_[mine][k] - (back ? costs_[theirs][k] : 0);
        const double up = loads_[low][k] + moved, down = loads_[high][k] - moved;
        after += up * up + down * down;
      }
      if (before - after > best.gain) best = {before - after, low, from, to};
    };
    for (size_t from = 0; from < packs_[high].size(); ++from) {
      for (size_t to = 0; to <= packs_[low].size(); ++to) try_one(from, to);
    }
  }

  void apply(size_t high, const Exchange& exchange) {
    const auto mine = static_cast<size_t>(packs_[high][exchange.from]);
    remove(high, exchange.from);
    if (exchange.to < packs_[exchange.low].size()) {
      const auto theirs = static_cast<size_t>(packs_[exchange.low][exchange.to]);
      remove(exchange.low, exchange.to);
      put(theirs, high);
    }
    put(mine, exchange.low);
  }

  const std::vector<Verdict>& samples_;
  int64_t budget_;
  std::vector<Costs> costs_;  // by sample
  Packs packs_;
  std::vector<int64_t> filled_;  // tokens, by bin
  std::vector<Costs> loads_;     // by bin
  std::set<std::pair<double, size_t>> by_weight_;
  double even_ = 0;  // the weight of a bin in which every cost is the mean
};

}  // namespace

double cost_of(const Verdict& verdict) { return verdict.cost > 0 ? verdict.cost : static_cast<double>(verdict.tokens); }

std::vector<std::vector<int64_t>> pack_samples(const std::vector<Verdict>& samples, int64_t budget) {
  // A tree over bins, of the most room in each part; bins that were not begun have all of it.
  size_t leaves = 1;
  while (leaves < samples.size()) leaves *= 2;
  std::vector<int64_t> room(2 * leaves, budget);
  std::vector<std::vector<int64_t>> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t tokens = samples[i].tokens;
    LOOM_CHECK_USER(tokens <= budget, samples[i].name, ": ", tokens, " tokens exceed data.budget = ", budget);
    size_t node = 1;
    while (node < leaves) node = room[2 * node] >= tokens ? 2 * node : 2 * node + 1;
    const size_t bin = node - leaves;
    if (bin == out.size()) out.emplace_back();
    out[bin].push_back(static_cast<int64_t>(i));
    for (room[node] -= tokens; node > 1; node /= 2) room[node / 2] = std::max(room[node], room[node ^ 1]);
  }
  return out;
}

std::vector<std::vector<int64_t>> pack_evenly(const std::vector<Verdict>& samples, int64_t budget,
                                              const WorldLayout& layout) {
  Packs first = pack_samples(samples, budget);
  const auto lanes = static_cast<size_t>(layout.lanes());
  if (lanes == 1 || first.empty()) return first;
  const size_t bins = (first.size() + lanes - 1) / lanes * lanes;
  std::optional<Packer> packer(std::in_place, samples, budget, layout, bins);
  if (!packer->longest_first()) {
    packer.emplace(samples, budget, layout, bins);
    packer->take(first);
  }
  packer->refine();
  return std::move(*packer).packs(lanes);
}

}  // namespace loom
