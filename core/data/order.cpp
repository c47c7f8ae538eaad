// Shuffling is a keyed permutation per epoch. Interleaving is a cycle of at most kLongestCycle positions in which every
// source is spread evenly: whole-number ratios come out exactly, others within one part in kLongestCycle.
#include "core/data/order.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"

namespace loom {
namespace {

constexpr uint64_t kLongestCycle = 4096;

// The shortest cycle in which every share is a whole number of samples; the longest allowed one when there is none.
uint64_t cycle_length(const std::vector<double>& shares) {
  for (uint64_t length = shares.size(); length < kLongestCycle; ++length) {
    bool exact = true;
    for (const double share : shares) {
      const double count = share * static_cast<double>(length);
      exact = exact && count > 0.5 && std::abs(count - std::round(count)) < 1e-9 * static_cast<double>(length);
    }
    if (exact) return length;
  }
  return kLongestCycle;
}

}  // namespace

SampleOrder::SampleOrder(std::vector<OrderSource> sources, uint64_t seed, bool shuffle)
    : sources_(std::move(sources)), seed_(seed), shuffle_(shuffle) {
  double weights = 0;
  bool weighted = false;
  for (OrderSource& source : sources_) {
    LOOM_CHECK_USER(source.size > 0, "data source ", source.name, " has no samples");
    LOOM_CHECK(source.weight >= 0, "weight of ", source.name);
    weighted = weighted || source.weight > 0;
    total_ += source.size;
  }
  LOOM_CHECK_USER(!sources_.empty(), "no data source is given; expected at least one");
  LOOM_CHECK(sources_.size() <= kLongestCycle, sources_.size(), " data sources");
  if (!weighted || sources_.size() == 1) return;
  std::vector<double> shares;
  for (const OrderSource& source : sources_) shares.push_back(source.weight > 0 ? source.weight : 1);
  for (const double share : shares) weights += share;
  for (double& share : shares) share /= weights;
  build_cycle(shares);
}

void SampleOrder::build_cycle(const std::vector<double>& shares) {
  const uint64_t length = cycle_length(shares);
  per_cycle_.assign(shares.size(), 1);  // even the rarest source is seen
  for (uint64_t given = shares.size(); given < length; ++given) {
    size_t neediest = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < shares.size(); ++s) {
      const double missing = shares[s] * static_cast<double>(length) - static_cast<double>(per_cycle_[s]);
      if (missing > largest) {
        largest = missing;
        neediest = s;
      }
    }
    ++per_cycle_[neediest];
  }
  std::vector<uint64_t> taken(shares.size(), 0);
  for (uint64_t turn = 0; turn < length; ++turn) {
    size_t next = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < shares.size(); ++s) {
      if (taken[s] == per_cycle_[s]) continue;
      const double due = static_cast<double>(per_cycle_[s] * (turn + 1)) / static_cast<double>(length);
      const double behind = due - static_cast<double>(taken[s]);
      if (behind > largest) {
        largest = behind;
        next = s;
      }
    }
    cycle_.push_back({static_cast<int>(next), taken[next]++});
  }
}

uint64_t SampleOrder::shuffled_index(uint64_t site, uint64_t size, uint64_t epoch, uint64_t index) const {
  if (!shuffle_) return index;
  return permute_index(Philox(RandomKey{.seed = seed_, .purpose = Purpose::shuffle, .site = site, .step = epoch}), size,
                       index);
}

SamplePlace SampleOrder::at(uint64_t position) const {
  SamplePlace place;
  if (!cycle_.empty()) {
    const Turn& turn = cycle_[position % cycle_.size()];
    const OrderSource& source = sources_[static_cast<size_t>(turn.source)];
    const uint64_t size = static_cast<uint64_t>(source.size);
    const uint64_t ordinal = position / cycle_.size() * per_cycle_[static_cast<size_t>(turn.source)] + turn.before;
    place.source = turn.source;
    place.epoch = ordinal / size;
    place.index = static_cast<int64_t>(shuffled_index(hash_name(source.name), size, place.epoch, ordinal % size));
    return place;
  }
  const uint64_t size = static_cast<uint64_t>(total_);
  place.epoch = position / size;
  place.index = static_cast<int64_t>(shuffled_index(0, size, place.epoch, position % size));
  while (place.index >= sources_[static_cast<size_t>(place.source)].size)
    place.index -= sources_[static_cast<size_t>(place.source++)].size;
  return place;
}

uint64_t SampleOrder::epoch_of(int source, uint64_t position) const {
  if (cycle_.empty()) return position / static_cast<uint64_t>(total_);
  uint64_t ordinal = position / cycle_.size() * per_cycle_[static_cast<size_t>(source)];
  for (size_t turn = 0; turn < position % cycle_.size(); ++turn) ordinal += cycle_[turn].source == source ? 1 : 0;
  return ordinal / static_cast<uint64_t>(sources_[static_cast<size_t>(source)].size);
}

}  // namespace loom
