#pragma once
// The recipe's endless order of samples: position -> (source, index, epoch), a pure function of sources, weights and
// seed. Nothing is stored but a short table, so any position can be asked for at any time: after a resume, on any rank,
// far ahead.
#include <cstdint>
#include <string>
#include <vector>

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
  // count 1), sources are interleaved by weight and each goes round at its own pace. UserError when there is no sample.
  SampleOrder(std::vector<OrderSource> sources, uint64_t seed, bool shuffle);

  SamplePlace at(uint64_t position) const;
  uint64_t epoch_of(int source, uint64_t position) const;  // of the source's next sample from `position` on
  int64_t epoch_size() const { return total_; }            // samples of all sources together
  const std::vector<OrderSource>& sources() const { return sources_; }
  bool weighted() const { return !cycle_.empty(); }
  uint64_t seed() const { return seed_; }
  bool shuffled() const { return shuffle_; }

 private:
  // One turn of the interleaving: which source, and how many of it came before in this turn.
  struct Turn {
    int source = 0;
    uint64_t before = 0;
  };
  void build_cycle(const std::vector<double>& shares);
  uint64_t shuffled_index(uint64_t site, uint64_t size, uint64_t epoch, uint64_t index) const;

  std::vector<OrderSource> sources_;
  uint64_t seed_;
  bool shuffle_;
  int64_t total_ = 0;
  std::vector<Turn> cycle_;          // empty = one list
  std::vector<uint64_t> per_cycle_;  // samples of each source in a turn
};

}  // namespace loom
