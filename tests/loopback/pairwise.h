#pragma once
// A small set of combinations in which every pair of levels of two factors occurs (all-pairs testing, greedy as in
// AETG: Cohen et al., 1997). Deterministic.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace loom::test {

struct Factor {
  std::string name;
  std::vector<std::string> levels;
};

using Combination = std::vector<int>;  // a level per factor; -1 = not chosen yet
// May these levels go together? Asked with some still open.
using Allowed = std::function<bool(const Combination&)>;

struct Coverage {
  int64_t covered = 0, possible = 0;
};

// Covers all pairs that are allowed, then adds random combinations until there are at least `least`.
std::vector<Combination> pairwise(const std::vector<Factor>& factors, const Allowed& allowed, size_t least,
                                  uint64_t seed);
Coverage coverage_of(const std::vector<Combination>& cases, const std::vector<Factor>& factors, const Allowed& allowed);
std::string describe(const Combination& combination, const std::vector<Factor>& factors);

}  // namespace loom::test
