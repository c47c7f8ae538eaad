#include "core/nn/ops/activation.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "core/base/error.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

int64_t value_width(const Tensor& x, Activation activation) {
  LOOM_CHECK(x.dim() == 2, "an activation of shape ", x.sizes());
  if (activation != Activation::swiglu) return x.size(1);
  LOOM_CHECK(x.size(1) % 2 == 0, "gate and up of width ", x.size(1));
  return x.size(1) / 2;
}

const char* record_name(Activation activation, bool backward) {
  if (activation == Activation::swiglu) return backward ? "loom::swiglu_backward" : "loom::swiglu";
  return backward ? "loom::gelu_backward" : "loom::gelu";
}

}  // namespace

Tensor activate(const Tensor& x, Activation activation) {
  RECORD_FUNCTION(record_name(activation, false), std::vector<c10::IValue>{});
  const Tensor wide = rows::work_tensor(x);
  const int64_t width = value_width(x, activation);
  Tensor y = at::empty({x.size(0), width}, wide.options());
  rows::dispatch(wide, [&](auto zero) {
    using T = decltype(zero);
    const kernels::KernelSet<T>& set = kernels::kernel_set<T>();
    const kernels::Rows<const T> in = rows::read<T>(wide);
    const kernels::Rows<T> out = rows::write<T>(y);
    rows::parallel(x.size(0), x.size(1), [&](int64_t begin, int64_t end) {
      if (activation == Activation::swiglu) {
        set.swiglu_forward(in, out, width, begin, end);
      } else {
        set.gelu_forward(in, out, activation == Activation::gelu_tanh, width, begin, end);
      }
    });
  });
  return y.to(x.scalar_type());
}

ActivationBackward activation_backward(const Tensor& x, const Tensor& dvalue, Activation activation, bool wants_value) {
  RECORD_FUNCTION(record_name(activation, true), std::vector<c10::IValue>{});
  const Tensor wide = rows::work_tensor(x), dy = rows::work_tensor(dvalue);
  const int64_t width = value_width(x, activation);
  Tensor dx = at::empty(x.sizes(), wide.options());
  rows::dispatch(wide, [&](auto zero) {
    using T = decltype(zero);
    const kernels::KernelSet<T>& set = kernels::kernel_set<T>();
    const kernels::Rows<const T> in = rows::read<T>(wide), grad = rows::read<T>(dy);
    const kernels::Rows<T> out = rows::write<T>(dx), again = wants_value ? rows::write<T>(dy) : kernels::Rows<T>{};
    rows::parallel(x.size(0), x.size(1), [&](int64_t begin, int64_t end) {
      if (activation == Activation::swiglu) {
        set.swiglu_backward(in, grad, out, again, width, begin, end);
      } else {
        set.gelu_backward(in, grad, out, again, activation == Activation::gelu_tanh, width, begin, end);
      }
    });
  });
  return {dx.to(x.scalar_type()), wants_value ? dy.to(x.scalar_type()) : Tensor()};
}

Tensor composed_activation(const Tensor& x, Activation activation) {
  if (activation == Activation::swiglu) {
    const int64_t width = value_width(x, activation);
    return at::silu(x.narrow(1, 0, width)) * x.narrow(1, width, width);
  }
  return at::gelu(x, activation == Activation::gelu_tanh ? "tanh" : "none");
}

}  // namespace loom
