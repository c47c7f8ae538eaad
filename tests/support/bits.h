#pragma once
// Equality to the bit.
#include <ATen/ATen.h>

namespace loom::test {

// The same bits (NaN equals NaN, 0 differs from -0).
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::ScalarType integers = a.element_size() == 8 ? at::kLong : a.element_size() == 4 ? at::kInt : at::kShort;
  return at::equal(a.detach().contiguous().view(integers), b.detach().contiguous().view(integers));
}

}  // namespace loom::test
