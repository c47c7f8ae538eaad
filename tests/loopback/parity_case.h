#pragma once
// Combinations of model and layout as parity cases: what the factors are, and what one case must show.
#include <string>
#include <vector>

#include "tests/loopback/harness.h"
#include "tests/loopback/pairwise.h"

namespace loom::test {

struct ParityCase {
  const ModelSpec* spec = nullptr;
  BindChoice bind;
  DataChoice data;
  LayoutChoice layout;
};

const std::vector<Factor>& parity_factors();
bool parity_allowed(const Combination& combination);
ParityCase parity_case(const Combination& combination, uint64_t seed);

// What the plans of a case exercise, and how often over all cases: nothing may be claimed and not happen.
struct Exercised {
  int64_t cases = 0, split_items = 0, split_samples = 0, idle_ranks = 0, halos = 0, split_sums = 0, recomputed = 0;
  int64_t without_items = 0, without_rows = 0;
  int64_t float_tensors = 0, by_noise = 0;  // compared in float32, and of these judged by their own rounding
  double worst_double = 0, worst_float = 0;
};

// Runs it against one rank; failures are reported as test failures. `name` says which.
void check_parity(const ParityCase& parity, const std::string& name, Exercised& sum);
void print(const Exercised& sum);

}  // namespace loom::test
