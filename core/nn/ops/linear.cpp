#include "core/nn/ops/linear.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/differentiable.h"
#include "core/nn/ops/activation.h"
#include "core/nn/ops/matmul.h"
#include "core/nn/ops/parameter_gradients.h"
#include "core/nn/ops/pieces.h"

namespace loom {
namespace {

using Activated = std::optional<Activation>;

Tensor composed(const Tensor& x, Activated activation, const Tensor& weight, const Tensor& bias,
                const Tensor& residual) {
  const Tensor y = at::linear(activation ? composed_activation(x, *activation) : x, weight,
                              bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
  return residual.defined() ? residual + y : y;
}

// The product starts from the residual, the bias, or both.
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  const Tensor a = readable(x), b = readable(weight).t();
  if (residual.defined() && bias.defined()) {
    at::add_out(y, residual, bias);
    matmul_into(y, a, b, true);
  } else if (residual.defined() || bias.defined()) {
    matmul_add_into(y, a, b, residual.defined() ? residual : bias);
  } else {
    matmul_into(y, a, b);
  }
  return y;
}

// Which input is where in the lists of autograd.
struct Places {
  bool bias = false, residual = false;
  Activated activation;
  GradientSink* weight_sink = nullptr;
  GradientSink* bias_sink = nullptr;
};

std::vector<Tensor> gradients(const BackwardCall& call, const Places& places) {
  const Tensor &x = call.saved[0], &weight = call.saved[1];
  const Tensor dy = readable(call.grad);
  const bool wants_x = call.needs[0], wants_weight = call.needs[1];
  std::vector<Tensor> out(call.needs.size());
  Tensor value = x;
  if (wants_x) out[0] = loom::matmul(dy, readable(weight));
  if (places.activation && wants_x) {
    ActivationBackward made = activation_backward(x, out[0], *places.activation, wants_weight);
    out[0] = std::move(made.dx);
    value = std::move(made.value);
  } else if (places.activation && wants_weight) {
    value = activate(x, *places.activation);
  }
  if (wants_weight) out[1] = product_gradient(places.weight_sink, dy, value);
  if (places.bias && call.needs[2]) out[2] = column_gradient(places.bias_sink, dy);
  if (places.residual && call.needs.back()) out.back() = call.grad;
  return out;
}

Tensor run(const Tensor& x, Activated activation, const Weight& weight, const Weight& bias, const Tensor& residual) {
  const int64_t in = weight.value.size(1), columns = activation == Activation::swiglu ? 2 * in : in;
  LOOM_CHECK(x.dim() >= 1 && x.size(-1) == columns, "linear: rows ", x.sizes(), " with a weight ",
             weight.value.sizes());
  if (x.dim() != 2) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.value.size(0);
    const Tensor start = residual.defined() ? residual.reshape({-1, shape.back()}) : residual;
    return run(x.reshape({-1, columns}), activation, weight, bias, start).reshape(shape);
  }
  const bool one_dtype = x.scalar_type() == weight.value.scalar_type() &&
                         (!residual.defined() || residual.scalar_type() == x.scalar_type());
  if (backend_of(x) != Backend::cpu || !one_dtype) return composed(x, activation, weight.value, bias.value, residual);
  Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = product(activation ? activate(x, *activation) : x, weight.value, bias.value, residual);
  }
  std::vector<Tensor> inputs{x, weight.value};
  if (bias.defined()) inputs.push_back(bias.value);
  if (residual.defined()) inputs.push_back(residual);
  if (!wants_gradient(inputs)) return y;
  const Places places{bias.defined(), residual.defined(), activation, weight.sink, bias.sink};
  const bool reads_x = weight.value.requires_grad() || (activation && x.requires_grad());
  return differentiable(y, inputs, {reads_x ? x : Tensor(), x.requires_grad() ? weight.value : Tensor()},
                        [places](const BackwardCall& call) { return gradients(call, places); });
}

}  // namespace

Tensor linear(const Tensor& x_TI, const Weight& weight_OI, const Weight& bias_O, const Tensor& residual_TO) {
  return run(x_TI, std::nullopt, weight_OI, bias_O, residual_TO);
}

Tensor swiglu_linear(const Tensor& x_T2I, const Weight& weight_OI, const Weight& bias_O, const Tensor& residual_TO) {
  return run(x_T2I, Activation::swiglu, weight_OI, bias_O, residual_TO);
}

Tensor gelu_linear(const Tensor& x_TI, Gelu gelu, const Weight& weight_OI, const Weight& bias_O,
                   const Tensor& residual_TO) {
  return run(x_TI, gelu == Gelu::tanh ? Activation::gelu_tanh : Activation::gelu, weight_OI, bias_O, residual_TO);
}

}  // namespace loom
