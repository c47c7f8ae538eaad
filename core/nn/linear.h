#pragma once
// y = x W' + b. Fused projections (qkv, gate_up) are one Linear whose weight has named parts.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
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
  std::string partition{};     // of the rows; read where tensor parallelism splits the weight
};

class Linear {
 public:
  Linear(const Declarer& d, int64_t in, int64_t out, const LinearOptions& options = {});
  Tensor operator()(const Tensor& x_TI, UnitContext& ctx) const;                      // [T, in] -> [T, out]
  Tensor add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const;  // residual + y, in one pass

  // What split weights do around a product (core/nn/tensor_parallel.h). columns(x): the rows that a column split
  // multiplies. summed(): calls product(bias, residual), which returns x W' + bias + residual; of a row split, sums the
  // members' x W' and adds the two once.
  Tensor columns(const Tensor& x_TI, UnitContext& ctx) const;
  using Product = std::function<Tensor(const Weight& bias, const Tensor& residual)>;
  Tensor summed(const Tensor& residual_TO, UnitContext& ctx, const Product& product) const;

  // For a layer that computes through a piece (core/nn/ops/linear.h) of its own.
  Weight weight(UnitContext& ctx) const;
  Weight bias(UnitContext& ctx) const;  // undefined without one

 private:
  Param weight_, bias_;
  Split split_ = Split::none;
  std::string partition_;
};

}  // namespace loom
