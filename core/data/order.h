#pragma once
// The recipe's endless order of samples: position -> (source, index, epoch), a pure function of sources, weights, seed
// and mix. Nothing is stored but short tables, so any position can be asked for at any time: after a resume, on any
// rank, far ahead.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/data/mix.h"

namespace loom {

struct OrderSource {
  std::string name;
  int64_t size = 0;
  double weight = 0;  // 0 = none given
};

struct SamplePlace {
  int source = 0;
  int64_t index = 0;
  uint64_t epoch = 0;
};

class SampleOrder {
 public:
  // Without weights the sources are one list: each sample once per epoch. As soon as one has a weight (the others then
  // count 1), sources are interleaved by weight and each goes round at its own pace. `mix` says other weights from
  // given positions on; a source goes on where it was, so that each of its epochs has every sample once, whatever the
  // mix. UserError when there is no sample.
  SampleOrder(std::vector<OrderSource> sources, uint64_t seed, bool shuffle, std::vector<MixSegment> mix = {});

  SamplePlace at(uint64_t position) const;
  uint64_t epoch_of(int source, uint64_t position) const;  // of the source's next sample from `position` on
  int64_t epoch_size() const { return total_; }            // samples of all sources together
  const std::vector<OrderSource>& sources() const { return sources_; }
  bool weighted() const { return !legs_.front().cycle.empty(); }  // from the beginning
  uint64_t seed() const { return seed_; }
  bool shuffled() const { return shuffle_; }

  // Other weights from a position on; whatever the mix said from there on is dropped.
  void change(const MixSegment& to);
  const std::vector<MixSegment>& mix() const { return mix_; }          // as constructed
  const std::vector<MixSegment>& changes() const { return changes_; }  // those made since, ascending

 private:
  // One turn of the interleaving: which source, and how many of it came before in this turn of the cycle.
  struct Turn {
    int source = 0;
    uint64_t before = 0;
  };
  // A segment of the mix. Turns of the cycle are counted from position 0, so that a source that is rare comes as often
  // as it should over many short segments, too.
  struct Leg {
    uint64_t begin = 0;
    std::vector<Turn> cycle;          // empty = one list
    std::vector<uint64_t> per_cycle;  // samples of each source in a cycle
    std::vector<uint64_t> offset;     // samples of each source before `begin`, less those that the cycle counts there
  };
  // The list's epoch in which it was left: what of each source was still to come, in the list's order.
  struct Rest {
    uint64_t epoch = 0, begin = 0;              // place in the list's epoch
    std::vector<uint64_t> seen;                 // of each source, before it
    std::vector<std::vector<uint64_t>> blocks;  // of each source: those to come before each block of places
  };

  void add_leg(const MixSegment& segment);
  void leave_list(uint64_t position, std::vector<uint64_t>& seen);
  const Leg& leg_at(uint64_t position) const;
  uint64_t count(const Leg& leg, int source, uint64_t position) const;    // turns of its cycle before a position
  uint64_t ordinal(const Leg& leg, int source, uint64_t position) const;  // samples of the source before it
  SamplePlace list_place(uint64_t position) const;
  int64_t rest_index(int source, uint64_t number) const;
  uint64_t shuffled_index(uint64_t site, uint64_t size, uint64_t epoch, uint64_t index) const;

  std::vector<OrderSource> sources_;
  uint64_t seed_;
  bool shuffle_;
  int64_t total_ = 0;
  std::vector<MixSegment> mix_, changes_;
  std::vector<Leg> legs_;  // the first begins at 0; only that one may be a list
  std::optional<Rest> rest_;
};

}  // namespace loom
