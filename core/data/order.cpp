// Shuffling is a keyed permutation per epoch. Interleaving is a cycle of at most kLongestCycle positions in which every
// source is spread evenly: whole-number ratios come out exactly, others within one part in kLongestCycle.
#include "core/data/order.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"

namespace loom {
namespace {

constexpr uint64_t kLongestCycle = 4096;
constexpr uint64_t kBlock = 256;  // places of a list that are looked through for one sample

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

// How often each comes in a cycle of `length`.
std::vector<uint64_t> counts_of(const std::vector<double>& shares, uint64_t length) {
  std::vector<uint64_t> out(shares.size(), 1);  // even the rarest source is seen
  for (uint64_t given = shares.size(); given < length; ++given) {
    size_t neediest = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < shares.size(); ++s) {
      const double missing = shares[s] * static_cast<double>(length) - static_cast<double>(out[s]);
      if (missing > largest) {
        largest = missing;
        neediest = s;
      }
    }
    ++out[neediest];
  }
  return out;
}

// Whose turn it is, all spread evenly.
std::vector<size_t> turns_of(const std::vector<uint64_t>& counts, uint64_t length) {
  std::vector<size_t> out;
  std::vector<uint64_t> taken(counts.size(), 0);
  for (uint64_t turn = 0; turn < length; ++turn) {
    size_t next = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < counts.size(); ++s) {
      if (taken[s] == counts[s]) continue;
      const double due = static_cast<double>(counts[s] * (turn + 1)) / static_cast<double>(length);
      const double behind = due - static_cast<double>(taken[s]);
      if (behind > largest) {
        largest = behind;
        next = s;
      }
    }
    ++taken[next];
    out.push_back(next);
  }
  return out;
}

}  // namespace

SampleOrder::SampleOrder(std::vector<OrderSource> sources, uint64_t seed, bool shuffle, std::vector<MixSegment> mix)
    : sources_(std::move(sources)), seed_(seed), shuffle_(shuffle), mix_(std::move(mix)) {
  for (const OrderSource& source : sources_) {
    LOOM_CHECK_USER(source.size > 0, "data source ", source.name, " has no samples");
    LOOM_CHECK(source.weight >= 0, "weight of ", source.name);
    total_ += source.size;
  }
  LOOM_CHECK_USER(!sources_.empty(), "no data source is given; expected at least one");
  LOOM_CHECK(sources_.size() <= kLongestCycle, sources_.size(), " data sources");
  if (mix_.empty()) {
    add_leg({});
  } else {
    LOOM_CHECK(mix_.front().begin == 0, "a mix that begins at ", mix_.front().begin);
    for (const MixSegment& segment : mix_) add_leg(segment);
  }
}

void SampleOrder::change(const MixSegment& to) {
  LOOM_CHECK(to.weights.size() == sources_.size(), to.weights.size(), " weights for ", sources_.size(), " sources");
  change_mix(changes_, to);
  while (!legs_.empty() && legs_.back().begin >= to.begin) legs_.pop_back();
  if (legs_.size() <= 1) rest_.reset();
  add_leg(to);
}

void SampleOrder::add_leg(const MixSegment& segment) {
  Leg leg;
  leg.begin = segment.begin;
  std::vector<double> weights = segment.weights;
  if (weights.empty()) {
    LOOM_CHECK(legs_.empty(), "a mix without weights at ", segment.begin);
    const bool given = std::any_of(sources_.begin(), sources_.end(), [](const auto& s) { return s.weight > 0; });
    if (!given || sources_.size() == 1) {
      legs_.push_back(std::move(leg));
      return;
    }
    for (const OrderSource& source : sources_) weights.push_back(source.weight > 0 ? source.weight : 1);
  }
  LOOM_CHECK(weights.size() == sources_.size(), weights.size(), " weights for ", sources_.size(), " sources");
  double sum = 0;
  for (const double weight : weights) {
    LOOM_CHECK(weight >= 0, "a weight of ", weight);
    sum += weight;
  }
  LOOM_CHECK(sum > 0, "a mix of nothing");
  std::vector<int> taking_part;
  std::vector<double> shares;
  for (size_t s = 0; s < weights.size(); ++s) {
    if (weights[s] <= 0) continue;
    taking_part.push_back(static_cast<int>(s));
    shares.push_back(weights[s] / sum);
  }
  const uint64_t length = cycle_length(shares);
  const std::vector<uint64_t> counts = counts_of(shares, length);
  leg.per_cycle.assign(sources_.size(), 0);
  for (size_t i = 0; i < counts.size(); ++i) leg.per_cycle[static_cast<size_t>(taking_part[i])] = counts[i];
  std::vector<uint64_t> taken(sources_.size(), 0);
  for (const size_t turn : turns_of(counts, length)) {
    const int source = taking_part[turn];
    leg.cycle.push_back({source, taken[static_cast<size_t>(source)]++});
  }
  std::vector<uint64_t> before(sources_.size(), 0);
  if (!legs_.empty()) {
    const Leg& last = legs_.back();
    LOOM_CHECK(segment.begin > last.begin, "a mix at ", segment.begin, " behind one at ", last.begin);
    if (last.cycle.empty()) {
      leave_list(segment.begin, before);
    } else {
      for (size_t s = 0; s < before.size(); ++s) before[s] = ordinal(last, static_cast<int>(s), segment.begin);
    }
  }
  for (size_t s = 0; s < before.size(); ++s)
    leg.offset.push_back(before[s] - count(leg, static_cast<int>(s), leg.begin));  // may wrap; so does the sum
  legs_.push_back(std::move(leg));
}

// Looks through one epoch of the list.
void SampleOrder::leave_list(uint64_t position, std::vector<uint64_t>& seen) {
  const uint64_t total = static_cast<uint64_t>(total_);
  Rest rest{position / total, position % total, std::vector<uint64_t>(sources_.size(), 0), {}};
  if (rest.begin > 0) {
    rest.blocks.resize(sources_.size());
    std::vector<uint64_t> to_come(sources_.size(), 0);
    for (uint64_t place = 0; place < total; ++place) {
      if (place >= rest.begin && (place - rest.begin) % kBlock == 0) {
        for (size_t s = 0; s < to_come.size(); ++s) rest.blocks[s].push_back(to_come[s]);
      }
      const size_t source = static_cast<size_t>(list_place(rest.epoch * total + place).source);
      ++(place < rest.begin ? rest.seen : to_come)[source];
    }
  }
  for (size_t s = 0; s < seen.size(); ++s)
    seen[s] = rest.epoch * static_cast<uint64_t>(sources_[s].size) + rest.seen[s];
  if (rest.begin > 0) rest_ = std::move(rest);
}

int64_t SampleOrder::rest_index(int source, uint64_t number) const {
  const std::vector<uint64_t>& blocks = rest_->blocks[static_cast<size_t>(source)];
  const auto block = std::upper_bound(blocks.begin(), blocks.end(), number) - blocks.begin() - 1;
  uint64_t passed = blocks[static_cast<size_t>(block)];
  const uint64_t total = static_cast<uint64_t>(total_);
  for (uint64_t place = rest_->begin + static_cast<uint64_t>(block) * kBlock; place < total; ++place) {
    const SamplePlace found = list_place(rest_->epoch * total + place);
    if (found.source == source && passed++ == number) return found.index;
  }
  throw InternalError(concat("no sample ", number, " is left of ", sources_[static_cast<size_t>(source)].name));
}

const SampleOrder::Leg& SampleOrder::leg_at(uint64_t position) const {
  const auto next =
      std::upper_bound(legs_.begin(), legs_.end(), position, [](uint64_t p, const Leg& leg) { return p < leg.begin; });
  return *std::prev(next);
}

uint64_t SampleOrder::count(const Leg& leg, int source, uint64_t position) const {
  uint64_t out = position / leg.cycle.size() * leg.per_cycle[static_cast<size_t>(source)];
  for (size_t turn = 0; turn < position % leg.cycle.size(); ++turn) out += leg.cycle[turn].source == source ? 1 : 0;
  return out;
}

uint64_t SampleOrder::ordinal(const Leg& leg, int source, uint64_t position) const {
  return leg.offset[static_cast<size_t>(source)] + count(leg, source, position);
}

uint64_t SampleOrder::shuffled_index(uint64_t site, uint64_t size, uint64_t epoch, uint64_t index) const {
  if (!shuffle_) return index;
  return permute_index(Philox(RandomKey{.seed = seed_, .purpose = Purpose::shuffle, .site = site, .step = epoch}), size,
                       index);
}

SamplePlace SampleOrder::list_place(uint64_t position) const {
  SamplePlace place;
  const uint64_t size = static_cast<uint64_t>(total_);
  place.epoch = position / size;
  place.index = static_cast<int64_t>(shuffled_index(0, size, place.epoch, position % size));
  while (place.index >= sources_[static_cast<size_t>(place.source)].size)
    place.index -= sources_[static_cast<size_t>(place.source++)].size;
  return place;
}

SamplePlace SampleOrder::at(uint64_t position) const {
  const Leg& leg = leg_at(position);
  if (leg.cycle.empty()) return list_place(position);
  SamplePlace place;
  const Turn& turn = leg.cycle[position % leg.cycle.size()];
  const size_t number = static_cast<size_t>(turn.source);
  const OrderSource& source = sources_[number];
  const uint64_t size = static_cast<uint64_t>(source.size);
  const uint64_t ordinal = leg.offset[number] + position / leg.cycle.size() * leg.per_cycle[number] + turn.before;
  place.source = turn.source;
  place.epoch = ordinal / size;
  const bool of_list = rest_.has_value() && place.epoch == rest_->epoch;
  place.index = of_list
                    ? rest_index(turn.source, ordinal % size - rest_->seen[number])
                    : static_cast<int64_t>(shuffled_index(hash_name(source.name), size, place.epoch, ordinal % size));
  return place;
}

uint64_t SampleOrder::epoch_of(int source, uint64_t position) const {
  const Leg& leg = leg_at(position);
  if (leg.cycle.empty()) return position / static_cast<uint64_t>(total_);
  return ordinal(leg, source, position) / static_cast<uint64_t>(sources_[static_cast<size_t>(source)].size);
}

}  // namespace loom
