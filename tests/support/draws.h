#pragma once
// A stream of draws with a place; what it gives depends on seed and site alone.
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/random.h"

namespace loom::test {

class Draws {
 public:
  explicit Draws(uint64_t seed, uint64_t site = 0) : random_({seed, Purpose::sample, site}) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(random_.below(static_cast<uint64_t>(bound), next_++)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(double p) { return random_.uniform(next_++) < p; }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

 private:
  Philox random_;
  uint64_t next_ = 0;
};

}  // namespace loom::test
