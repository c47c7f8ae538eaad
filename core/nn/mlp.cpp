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
  return down_.summed(residual_TW, ctx, [&](const Weight& bias, const Tensor& residual) {
    return swiglu_linear(gate_up_(x_TW, ctx), down_.weight(ctx), bias, residual);
  });
}

GeluMlp::GeluMlp(const Declarer& d, const GeluMlpOptions& options)
    : fc1_(d.child("fc1"), options.in, options.hidden,
           {.bias = options.bias, .split = Split::column, .partition = options.partition}),
      fc2_(d.child("fc2"), options.hidden, options.out > 0 ? options.out : options.in,
           {.bias = options.bias, .split = Split::row, .partition = options.partition}),
      gelu_(options.gelu) {}

Tensor GeluMlp::operator()(const Tensor& x_TI, UnitContext& ctx) const { return add(x_TI, Tensor(), ctx); }

Tensor GeluMlp::add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const {
  return fc2_.summed(residual_TO, ctx, [&](const Weight& bias, const Tensor& residual) {
    return gelu_linear(fc1_(x_TI, ctx), gelu_, fc2_.weight(ctx), bias, residual);
  });
}

}  // namespace loom
