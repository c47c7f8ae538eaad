#pragma once
// Feed-forward blocks: SwiGLU with one fused gate_up projection, and the plain two-layer form with GELU.
#include <cstdint>
#include <string>

#include "core/base/tensor.h"
#include "core/nn/declare.h"
#include "core/nn/linear.h"
#include "core/nn/ops/linear.h"

namespace loom {

class UnitContext;

// down(silu(gate(x)) * up(x)).
class SwiGlu {
 public:
  SwiGlu(const Declarer& d, int64_t width, int64_t hidden, bool bias = false);
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;
  Tensor add(const Tensor& x_TW, const Tensor& residual_TW, UnitContext& ctx) const;  // residual + mlp(x)

 private:
  Linear gate_up_, down_;
};

struct GeluMlpOptions {
  int64_t in = 0;
  int64_t hidden = 0;
  int64_t out = 0;  // 0 = in
  bool bias = true;
  Gelu gelu = Gelu::exact;
  std::string partition{};  // of the rows
};

// fc2(gelu(fc1(x))).
class GeluMlp {
 public:
  GeluMlp(const Declarer& d, const GeluMlpOptions& options);
  Tensor operator()(const Tensor& x_TI, UnitContext& ctx) const;
  Tensor add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const;

 private:
  Linear fc1_, fc2_;
  Gelu gelu_;
};

}  // namespace loom
