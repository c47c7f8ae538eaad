#pragma once
// Numbers that every rank can compute for every other one, so that each rank checks what it received by itself.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/random.h"
#include "core/comm/loopback.h"
#include "tests/support/bits.h"

namespace loom::test {

// n values with fractions, different for every (seed, rank); sums of them depend on the order of addition.
inline Tensor values_of(uint64_t seed, int rank, int64_t n, at::ScalarType type) {
  const Philox random(RandomKey{.seed = seed, .site = static_cast<uint64_t>(rank)});
  Tensor out = at::empty({n}, at::kDouble);
  for (int64_t i = 0; i < n; ++i) out.data_ptr<double>()[i] = random.uniform(static_cast<uint64_t>(i)) * 2 - 1;
  return out.to(type);
}

// The members' sum in rank order.
inline Tensor sum_of(uint64_t seed, const RankGroup& group, int64_t n, at::ScalarType type) {
  Tensor sum = values_of(seed, group[0], n, type);
  for (size_t i = 1; i < group.size(); ++i) sum.add_(values_of(seed, group[i], n, type));
  return sum;
}

inline CommCount count_of(const Communicator& comm, CommKind kind) {
  const auto found = comm.counts().find(kind);
  return found == comm.counts().end() ? CommCount{} : found->second;
}

}  // namespace loom::test
