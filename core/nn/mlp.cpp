#include "core/nn/mlp.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/nn/context.h"
#include "core/nn/differentiable.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

Tensor swiglu_forward(const Tensor& x) {
  const Tensor wide = rows::work_tensor(x);
  const int64_t width = x.size(1) / 2;
  Tensor y = at::empty({x.size(0), width}, wide.options());
  rows::dispatch(wide, [&](auto zero) {
    using T = decltype(zero);
    rows::parallel(x.size(0), x.size(1), [&](int64_t begin, int64_t end) {
      kernels::kernel_set<T>().swiglu_forward(rows::read<T>(wide), rows::write<T>(y), width, begin, end);
    });
  });
  return y.to(x.scalar_type());
}

Tensor swiglu_backward(const Tensor& x, const Tensor& grad) {
  const Tensor wide = rows::work_tensor(x), dy = rows::work_tensor(grad.to(x.scalar_type()));
  Tensor dx = at::empty(x.sizes(), wide.options());
  rows::dispatch(wide, [&](auto zero) {
    using T = decltype(zero);
    rows::parallel(x.size(0), x.size(1), [&](int64_t begin, int64_t end) {
      kernels::kernel_set<T>().swiglu_backward(rows::read<T>(wide), rows::read<T>(dy), rows::write<T>(dx),
                                               x.size(1) / 2, begin, end);
    });
  });
  return dx.to(x.scalar_type());
}

// [T, gate | up] -> silu(gate) * up, without the three intermediate tensors of the plain form.
Tensor swiglu(const Tensor& x) {
  Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = swiglu_forward(x);
  }
  return differentiable(y, {x}, {x}, [](const BackwardCall& call) {
    return std::vector<Tensor>{swiglu_backward(call.saved[0], call.grad)};
  });
}

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

Tensor SwiGlu::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  return down_(swiglu(gate_up_(x_TW, ctx)), ctx);
}

GeluMlp::GeluMlp(const Declarer& d, const GeluMlpOptions& options)
    : fc1_(d.child("fc1"), options.in, options.hidden, {.bias = options.bias, .split = Split::column}),
      fc2_(d.child("fc2"), options.hidden, options.out > 0 ? options.out : options.in,
           {.bias = options.bias, .split = Split::row}),
      gelu_(options.gelu) {}

Tensor GeluMlp::operator()(const Tensor& x_TI, UnitContext& ctx) const {
  return fc2_(at::gelu(fc1_(x_TI, ctx), gelu_ == Gelu::tanh ? "tanh" : "none"), ctx);
}

}  // namespace loom
