// Both norms are one kernel. Gradients of weight and bias are summed over blocks of rows first, so that they do not
// depend on the number of threads.
#include "core/nn/norm.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/context.h"
#include "core/nn/differentiable.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

constexpr int64_t kBlockRows = 64;

struct Statistics {
  Tensor mean, scale;
};

template <class T>
kernels::NormArgs<T> norm_args(const Tensor& x, const Tensor& weight, const Statistics& statistics, bool center,
                               double eps) {
  kernels::NormArgs<T> args;
  args.x = rows::read<T>(x);
  args.weight = weight.const_data_ptr<T>();
  args.mean = statistics.mean.mutable_data_ptr<T>();
  args.scale = statistics.scale.mutable_data_ptr<T>();
  args.width = x.size(1);
  args.center = center;
  args.eps = static_cast<T>(eps);
  return args;
}

Tensor forward(const Tensor& x, const Tensor& weight, const Tensor* bias, const Statistics& statistics, double eps) {
  Tensor y = at::empty(x.sizes(), x.options());
  rows::dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::NormArgs<T> args = norm_args<T>(x, weight, statistics, bias != nullptr, eps);
    args.y = rows::write<T>(y);
    args.bias = bias != nullptr ? bias->const_data_ptr<T>() : nullptr;
    rows::parallel(x.size(0), x.size(1),
                   [&](int64_t begin, int64_t end) { kernels::kernel_set<T>().norm_forward(args, begin, end); });
  });
  return y;
}

std::vector<Tensor> backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Statistics& statistics,
                             bool center) {
  const int64_t blocks = (x.size(0) + kBlockRows - 1) / kBlockRows, width = x.size(1);
  Tensor dx = at::empty(x.sizes(), x.options());
  const Tensor dweight = at::zeros({blocks, width}, x.options());
  const Tensor dbias = center ? at::zeros({blocks, width}, x.options()) : Tensor();
  rows::dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::NormArgs<T> args = norm_args<T>(x, weight, statistics, center, 0);
    args.dy = rows::read<T>(dy);
    args.dx = rows::write<T>(dx);
    rows::parallel(blocks, kBlockRows * width, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        kernels::NormArgs<T> part = args;
        part.dweight = dweight.mutable_data_ptr<T>() + block * width;
        part.dbias = center ? dbias.mutable_data_ptr<T>() + block * width : nullptr;
        kernels::kernel_set<T>().norm_backward(part, block * kBlockRows, std::min(x.size(0), (block + 1) * kBlockRows));
      }
    });
  });
  std::vector<Tensor> grads{dx, dweight.sum(0)};
  if (center) grads.push_back(dbias.sum(0));
  return grads;
}

// bias undefined = root mean square.
Tensor normalize(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const int64_t width = weight.size(0);
  LOOM_CHECK(x.dim() >= 1 && x.size(-1) == width, "norm of width ", width, " got shape ", x.sizes());
  const bool center = bias.defined();
  std::vector<Tensor> inputs{x, weight};
  if (center) inputs.push_back(bias);
  const bool record = wants_gradient(inputs);
  Tensor y, flat, wide_weight;
  Statistics statistics;
  {
    const c10::NoGradGuard no_grad;
    flat = rows::work_tensor(x).reshape({-1, width});
    wide_weight = rows::work_tensor(weight).contiguous();
    const Tensor wide_bias = center ? rows::work_tensor(bias).contiguous() : Tensor();
    statistics = {at::empty({flat.size(0)}, flat.options()), at::empty({flat.size(0)}, flat.options())};
    y = forward(flat, wide_weight, center ? &wide_bias : nullptr, statistics, eps)
            .reshape(x.sizes())
            .to(x.scalar_type());
  }
  if (!record) return y;
  return differentiable(y, inputs, {x, weight, statistics.mean, statistics.scale}, [center](const BackwardCall& call) {
    const Tensor& input = call.saved[0];
    const int64_t columns = input.size(-1);
    const Tensor dy = rows::work_tensor(call.grad.to(input.scalar_type())).reshape({-1, columns});
    std::vector<Tensor> grads =
        backward(dy, rows::work_tensor(input).reshape({-1, columns}), rows::work_tensor(call.saved[1]).contiguous(),
                 {call.saved[2], call.saved[3]}, center);
    grads[0] = grads[0].reshape(input.sizes());
    for (Tensor& g : grads) g = g.to(input.scalar_type());
    return grads;
  });
}

}  // namespace

RmsNorm::RmsNorm(const Declarer& d, int64_t width, double eps)
    : weight_(d.param("weight", {width}, Init::ones())), eps_(eps) {}

Tensor RmsNorm::operator()(const Tensor& x, UnitContext& ctx) const {
  return normalize(x, ctx[weight_], Tensor(), eps_);
}

LayerNorm::LayerNorm(const Declarer& d, int64_t width, double eps)
    : weight_(d.param("weight", {width}, Init::ones())), bias_(d.param("bias", {width}, Init::zeros())), eps_(eps) {}

Tensor LayerNorm::operator()(const Tensor& x, UnitContext& ctx) const {
  return normalize(x, ctx[weight_], ctx[bias_], eps_);
}

}  // namespace loom
