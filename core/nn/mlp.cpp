#include "core/nn/mlp.h"

#include "core/nn/context.h"

namespace loom {
namespace {

LinearOptions gate_up_options(int64_t hidden, bool bias) {
  LinearOptions options;
  options.bias = bias;
  options.split = Split::column;
  options.parts = {{"gate", hidden, Split::column, 1}, {"up", hidden, Split::column, 1}};
  return options;
}

}  // namespace

SwiGlu::SwiGlu(const Declarer& d, int64_t width, int64_t hidden, bool bias)
    : gate_up_(d.child("gate_up"), width, 2 * hidden, gate_up_options(hidden, bias)),
      down_(d.child("down"), hidden, width, {.bias = bias, .split = Split::row}) {}

Tensor SwiGlu::operator()(const Tensor& x_TW, UnitContext& ctx) const { return add(x_TW, Tensor(), ctx); }

Tensor SwiGlu::add(const Tensor& x_TW, const Tensor& residual_TW, UnitContext& ctx) const {
  return swiglu_linear(gate_up_(x_TW, ctx), down_.weight(ctx), down_.bias(ctx), residual_TW);
}

GeluMlp::GeluMlp(const Declarer& d, const GeluMlpOptions& options)
    : fc1_(d.child("fc1"), options.in, options.hidden, {.bias = options.bias, .split = Split::column}),
      fc2_(d.child("fc2"), options.hidden, options.out > 0 ? options.out : options.in,
           {.bias = options.bias, .split = Split::row}),
      gelu_(options.gelu) {}

Tensor GeluMlp::operator()(const Tensor& x_TI, UnitContext& ctx) const { return add(x_TI, Tensor(), ctx); }

Tensor GeluMlp::add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const {
  return gelu_linear(fc1_(x_TI, ctx), gelu_, fc2_.weight(ctx), fc2_.bias(ctx), residual_TO);
}

}  // namespace loom
