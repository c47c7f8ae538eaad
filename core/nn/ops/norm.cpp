// Both norms are one kernel, with the addition before it. Gradients of weight and bias are summed over blocks of rows
// first, so that they do not depend on the number of threads.
#include "core/nn/ops/norm.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/differentiable.h"
#include "core/nn/kernels/row_threads.h"
#include "core/nn/ops/parameter_gradients.h"
#include "core/nn/ops/pieces.h"

namespace loom {
namespace {

constexpr int64_t kBlockRows = 64;

// In work dtype, [rows, width].
Tensor flat(const Tensor& x) { return rows::work_tensor(rows::work_tensor(x).reshape({-1, x.size(-1)})); }

Tensor composed(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor wide = rows::work_tensor(x), factor = weight.to(wide.scalar_type());
  if (!bias.defined()) return (wide * (wide * wide).mean(-1, true).add(eps).rsqrt() * factor).to(x.scalar_type());
  const Tensor centred = wide - wide.mean(-1, true);
  const Tensor scale = (centred * centred).mean(-1, true).add(eps).rsqrt();
  return (centred * scale * factor + bias.to(wide.scalar_type())).to(x.scalar_type());
}

struct Forward {
  Tensor sum;  // undefined without delta
  Tensor normed;
  Tensor mean, scale;  // [rows]; mean of layer norm only
};

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<T>() : nullptr;
}

Forward forward(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias, double eps) {
  RECORD_FUNCTION("loom::norm", std::vector<c10::IValue>{});
  const c10::NoGradGuard no_grad;
  // Half types are added in their own dtype, as anywhere else.
  const bool adds = delta.defined() && x.scalar_type() == rows::work_dtype(x);
  Forward out;
  if (delta.defined()) out.sum = adds ? at::empty(x.sizes(), x.options()) : x + delta;
  const Tensor from = flat(delta.defined() && !adds ? out.sum : x), more = adds ? flat(delta) : Tensor();
  const Tensor factor = rows::work_tensor(weight).contiguous();
  const Tensor shift = bias.defined() ? rows::work_tensor(bias).contiguous() : Tensor();
  const Tensor y = at::empty(from.sizes(), from.options());
  out.scale = at::empty({from.size(0)}, from.options());
  if (bias.defined()) out.mean = at::empty({from.size(0)}, from.options());
  rows::dispatch(from, [&](auto zero) {
    using T = decltype(zero);
    kernels::NormArgs<T> args;
    args.x = rows::read<T>(from);
    args.y = rows::write<T>(y);
    args.weight = factor.const_data_ptr<T>();
    args.bias = data_or_null<T>(shift);
    args.mean = data_or_null<T>(out.mean);
    args.scale = out.scale.mutable_data_ptr<T>();
    args.width = from.size(1);
    args.center = bias.defined();
    args.eps = static_cast<T>(eps);
    if (adds) {
      args.delta = rows::read<T>(more);
      args.sum = {out.sum.mutable_data_ptr<T>(), from.size(1)};
    }
    rows::parallel(from.size(0), from.size(1),
                   [&](int64_t begin, int64_t end) { kernels::kernel_set<T>().norm_forward(args, begin, end); });
  });
  out.normed = y.reshape(x.sizes()).to(x.scalar_type());
  return out;
}

// Which inputs there are besides x and the weight, in the order x, delta, weight, bias.
struct Places {
  bool delta = false, bias = false;
  GradientSink* weight_sink = nullptr;
  GradientSink* bias_sink = nullptr;
};

// The gradient of x + delta, and what the weight and the bias get from each block of rows (undefined when not wanted).
struct Backward {
  Tensor dx, dweight, dbias;
};

Backward backward(const Tensor& x, const Tensor& dy, const Tensor& dsum, const Tensor& weight, const Tensor& mean,
                  const Tensor& scale, bool wants_weight, bool wants_bias) {
  RECORD_FUNCTION("loom::norm_backward", std::vector<c10::IValue>{});
  const int64_t blocks = (x.size(0) + kBlockRows - 1) / kBlockRows, width = x.size(1);
  Backward out;
  out.dx = at::empty(x.sizes(), x.options());
  if (wants_weight) out.dweight = at::zeros({blocks, width}, x.options());
  if (wants_bias) out.dbias = at::zeros({blocks, width}, x.options());
  rows::dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::NormArgs<T> args;
    args.x = rows::read<T>(x);
    args.dy = rows::read<T>(dy);
    args.dx = rows::write<T>(out.dx);
    args.weight = weight.const_data_ptr<T>();
    args.mean = data_or_null<T>(mean);
    args.scale = scale.mutable_data_ptr<T>();
    args.width = width;
    args.center = mean.defined();
    if (dsum.defined()) args.dsum = rows::read<T>(dsum);
    T *dweight = data_or_null<T>(out.dweight), *dbias = data_or_null<T>(out.dbias);
    rows::parallel(blocks, kBlockRows * width, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        kernels::NormArgs<T> part = args;
        if (dweight != nullptr) part.dweight = dweight + block * width;
        if (dbias != nullptr) part.dbias = dbias + block * width;
        kernels::kernel_set<T>().norm_backward(part, block * kBlockRows, std::min(x.size(0), (block + 1) * kBlockRows));
      }
    });
  });
  return out;
}

// grads: of the sum (may be undefined) and of the normed rows.
std::vector<Tensor> gradients(const BackwardCall& call, const Tensor& dsum, const Tensor& dy, const Places& places) {
  const Tensor &x = call.saved[0], &weight = call.saved[1];
  const at::ScalarType dtype = x.scalar_type();
  const size_t weight_at = places.delta ? 2 : 1;
  std::vector<Tensor> out(call.needs.size());
  const auto give_x = [&](const Tensor& dx) {
    if (call.needs[0]) out[0] = dx;
    if (places.delta && call.needs[1]) out[1] = dx;
  };
  if (!dy.defined()) {
    give_x(dsum);
    return out;
  }
  const Backward found = backward(flat(x), flat(dy.to(dtype)), dsum.defined() ? flat(dsum.to(dtype)) : dsum,
                                  rows::work_tensor(weight).contiguous(), call.saved[2], call.saved[3],
                                  call.needs[weight_at], places.bias && call.needs[weight_at + 1]);
  give_x(found.dx.reshape(x.sizes()).to(dtype));
  const auto to_parameter = [&](GradientSink* sink, const Tensor& blocks) {
    if (!blocks.defined()) return Tensor();
    return blocks.scalar_type() == dtype ? column_gradient(sink, blocks) : blocks.sum(0).to(dtype);
  };
  out[weight_at] = to_parameter(places.weight_sink, found.dweight);
  if (places.bias) out[weight_at + 1] = to_parameter(places.bias_sink, found.dbias);
  return out;
}

void check(const Tensor& x, const Weight& weight) {
  const int64_t width = weight.value.size(0);
  LOOM_CHECK(x.dim() >= 1 && x.size(-1) == width, "norm of width ", width, " got shape ", x.sizes());
}

}  // namespace

Tensor norm(const Tensor& x, const Weight& weight, const Weight& bias, double eps) {
  check(x, weight);
  if (backend_of(x) != Backend::cpu) return composed(x, weight.value, bias.value, eps);
  const Forward made = forward(x, Tensor(), weight.value, bias.value, eps);
  std::vector<Tensor> inputs{x, weight.value};
  if (bias.defined()) inputs.push_back(bias.value);
  const Places places{false, bias.defined(), weight.sink, bias.sink};
  return differentiable(made.normed, inputs, {x, weight.value, made.mean, made.scale},
                        [places](const BackwardCall& call) { return gradients(call, Tensor(), call.grad, places); });
}

AddedNorm add_norm(const Tensor& x, const Tensor& delta, const Weight& weight, const Weight& bias, double eps) {
  check(x, weight);
  const bool same = !delta.defined() || (delta.sizes() == x.sizes() && delta.scalar_type() == x.scalar_type());
  if (backend_of(x) != Backend::cpu || !same) {
    const Tensor sum = delta.defined() ? x + delta : x;
    return {sum, norm(sum, weight, bias, eps)};
  }
  if (!delta.defined() && !x.requires_grad()) return {x, norm(x, weight, bias, eps)};
  const Forward made = forward(x, delta, weight.value, bias.value, eps);
  std::vector<Tensor> inputs{x};
  if (delta.defined()) inputs.push_back(delta);
  inputs.push_back(weight.value);
  if (bias.defined()) inputs.push_back(bias.value);
  const Tensor& sum = delta.defined() ? made.sum : x;
  const Places places{delta.defined(), bias.defined(), weight.sink, bias.sink};
  std::vector<Tensor> out = differentiable(
      {sum, made.normed}, inputs, {sum, weight.value, made.mean, made.scale},
      [places](const BackwardCall& call) { return gradients(call, call.grads[0], call.grads[1], places); });
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace loom
