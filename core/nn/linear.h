#pragma once
// y = x W' + b. Fused projections (qkv, gate_up) are one Linear whose weight has named parts.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/declare.h"
#include "core/nn/gradient_sink.h"

namespace loom {

class UnitContext;

struct LinearOptions {
  bool bias = true;
  Split split = Split::none;   // column: outputs are cut, row: inputs are
  int64_t block = 1;           // rows (column split) or columns (row split) that stay together
  std::vector<Part> parts{};   // of dim 0; the bias has the same
  std::optional<Init> init{};  // default: Init::fan_in(in)
};

class Linear {
 public:
  Linear(const Declarer& d, int64_t in, int64_t out, const LinearOptions& options = {});
  Tensor operator()(const Tensor& x_TI, UnitContext& ctx) const;                      // [T, in] -> [T, out]
  Tensor add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const;  // residual + y, in one pass

  // For a layer that computes through a piece (core/nn/ops/linear.h) of its own.
  Weight weight(UnitContext& ctx) const;
  Weight bias(UnitContext& ctx) const;  // undefined without one

 private:
  Param weight_, bias_;
};

}  // namespace loom
