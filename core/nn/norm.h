#pragma once
// Norms over the last dimension, each row alone (its bits do not depend on the other rows), accumulated in float for
// half types.
#include <cstdint>

#include "core/base/tensor.h"
#include "core/nn/declare.h"
#include "core/nn/ops/norm.h"

namespace loom {

class UnitContext;

// x / rms(x) * weight.
class RmsNorm {
 public:
  RmsNorm(const Declarer& d, int64_t width, double eps = 1e-6);
  Tensor operator()(const Tensor& x, UnitContext& ctx) const;  // [..., width] -> [..., width]
  // Norms the sum of the stream and what a branch adds to it (nothing: undefined); a block goes on with both.
  AddedNorm add(const Tensor& x, const Tensor& delta, UnitContext& ctx) const;

 private:
  Param weight_;
  double eps_;
};

// (x - mean(x)) / deviation(x) * weight + bias.
class LayerNorm {
 public:
  LayerNorm(const Declarer& d, int64_t width, double eps = 1e-5);
  Tensor operator()(const Tensor& x, UnitContext& ctx) const;
  AddedNorm add(const Tensor& x, const Tensor& delta, UnitContext& ctx) const;

 private:
  Param weight_, bias_;
  double eps_;
};

}  // namespace loom
