// Angles are computed in double and rounded once, so a position turns by the same amount in every pack and in every
// layer. They are kept in a table by position: 64 bytes per position and layer at a head width of 16 are cheaper than
// sines in every step.
#include "core/nn/rotary.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <mutex>

#include "core/base/error.h"
#include "core/nn/context.h"
#include "core/nn/differentiable.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {

struct Rotary::Tables {
  int64_t half = 1;
  double theta = 1;
  std::mutex mutex;
  Tensor cosines[2], sines[2];  // float, double

  // At least `positions` rows; the tensors stay valid when another thread grows the table.
  std::pair<Tensor, Tensor> upto(int64_t positions, at::ScalarType dtype, c10::Device device) {
    const std::lock_guard<std::mutex> lock(mutex);
    const int which = dtype == at::kDouble ? 1 : 0;
    if (!cosines[which].defined() || cosines[which].size(0) < positions || cosines[which].device() != device) {
      int64_t rows = 256;
      while (rows < positions) rows *= 2;
      const c10::NoGradGuard no_grad;
      const auto options = at::TensorOptions(at::kDouble).device(device);
      const Tensor steps = at::arange(half, options) * (-2.0 / static_cast<double>(2 * half));
      const Tensor angles = at::outer(at::arange(rows, options), at::pow(theta, steps));
      cosines[which] = angles.cos().to(dtype);
      sines[which] = angles.sin().to(dtype);
    }
    return {cosines[which], sines[which]};
  }
};

namespace {

struct Angles {
  Tensor positions, cosines, sines;
};

Tensor rotate(const Tensor& x, const Angles& angles, int64_t half, bool inverse) {
  const Tensor wide = rows::work_tensor(x);
  Tensor y = at::empty(x.sizes(), wide.options());
  rows::dispatch(wide, [&](auto zero) {
    using T = decltype(zero);
    kernels::RotaryArgs<T> args;
    args.x = rows::read<T>(wide);
    args.y = rows::write<T>(y);
    args.positions = angles.positions.const_data_ptr<int64_t>();
    args.cosines = angles.cosines.const_data_ptr<T>();
    args.sines = angles.sines.const_data_ptr<T>();
    args.heads = x.size(1) / (2 * half);
    args.half = half;
    args.inverse = inverse;
    rows::parallel(x.size(0), x.size(1),
                   [&](int64_t begin, int64_t end) { kernels::kernel_set<T>().rotary(args, begin, end); });
  });
  return y.to(x.scalar_type());
}

}  // namespace

Rotary::Rotary(int64_t head_dim, double theta, std::string partition)
    : head_dim_(head_dim), partition_(std::move(partition)), tables_(std::make_shared<Tables>()) {
  if (head_dim <= 0 || head_dim % 2 != 0) throw PluginError(concat("rotary: head_dim must be even, found ", head_dim));
  tables_->half = head_dim / 2;
  tables_->theta = theta;
}

Tensor Rotary::operator()(const Tensor& x, UnitContext& ctx) const {
  const Segments& segments = ctx.segments(partition_);
  if (segments.position_axes != 1)
    throw PluginError(concat("rotary: one position axis expected, found ", segments.position_axes));
  LOOM_CHECK(x.dim() == 2 && x.size(0) == segments.rows() && x.size(1) % head_dim_ == 0, "rotary: shape ", x.sizes(),
             ", ", segments.rows(), " rows and heads of ", head_dim_, " expected");
  int64_t last = 0;
  for (const int64_t position : segments.positions) {
    if (position < 0) throw PluginError(concat("rotary: position ", position));
    last = std::max(last, position);
  }
  Angles angles;
  angles.positions = ctx.positions(partition_).reshape({-1});
  std::tie(angles.cosines, angles.sines) = tables_->upto(last + 1, rows::work_dtype(x), x.device());
  const int64_t half = head_dim_ / 2;
  Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = rotate(x, angles, half, false);
  }
  return differentiable(y, {x}, {}, [angles, half](const BackwardCall& call) {
    return std::vector<Tensor>{rotate(call.grad, angles, half, true)};
  });
}

}  // namespace loom
