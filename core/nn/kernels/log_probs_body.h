#pragma once
// Log-probabilities of targets and what their sum's gradient is, in one visit of each row of logits: one exponential
// per number. The log-sum-exp has the bits that row_lse gives.
#include "core/nn/kernels/rows_body.h"

namespace loom::kernels {
namespace {

template <class T>
void logprob_both(Rows<T> x, T* lse, T* picked, const int64_t* targets, int64_t width, int64_t begin, int64_t end) {
  constexpr int64_t kW = kWidth<T>;
  for (int64_t r = begin; r < end; ++r) {
    T* row = x.data + r * x.stride;
    Vec<T> top = broadcast<T>(static_cast<T>(-__builtin_inf()));
    int64_t c = 0;
    for (; c + kW <= width; c += kW) top = larger<T>(load<T>(row + c), top);
    T largest = largest_lane<T>(top);
    for (; c < width; ++c) largest = row[c] > largest ? row[c] : largest;
    picked[r] = row[targets[r]];
    Vec<T> sum{};
    T rest = 0;
    for_vectors<T>(width, [&](int64_t i, int64_t n) {
      const Vec<T> p = exponential<T>(load_n<T>(row + i, n) - largest);
      store_n<T>(row + i, p, n);
      if (n == kW) {
        sum += p;
      } else {
        for (int64_t j = 0; j < n; ++j) rest += p[j];
      }
    });
    const T total = sum_lanes<T>(sum) + rest, factor = T{-1} / total;
    lse[r] = largest + row_logarithm(total);
    for_vectors<T>(width, [&](int64_t i, int64_t n) { store_n<T>(row + i, load_n<T>(row + i, n) * factor, n); });
    row[targets[r]] += T{1};
  }
}

}  // namespace
}  // namespace loom::kernels
