// Angles are computed in double and rounded once, so a position turns by the same amount in every pack and in every
// layer. They are kept in a table by position: 64 bytes per position and layer at a head width of 16 are cheaper than
// sines in every step.
#include "core/nn/rotary.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <mutex>

#include "core/base/error.h"
#include "core/base/parallel.h"
#include "core/nn/context.h"
#include "core/nn/differentiable.h"
#include "core/nn/kernels/row_threads.h"
#include "core/nn/ops/pieces.h"

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
      const Tensor c = at::empty({rows, half}, at::kDouble), s = at::empty({rows, half}, at::kDouble);
      fill(c.mutable_data_ptr<double>(), s.mutable_data_ptr<double>(), rows);
      cosines[which] = c.to(dtype).to(device);
      sines[which] = s.to(dtype).to(device);
    }
    return {cosines[which], sines[which]};
  }

  // By the C library: ATen's functions may go to a vector library that gives fewer digits when several threads (ranks)
  // are the first to call it.
  void fill(double* c, double* s, int64_t rows) const {
    std::vector<double> steps;
    for (int64_t i = 0; i < half; ++i)
      steps.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(half)));
    loom::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(row) * steps[static_cast<size_t>(i)];
          c[row * half + i] = std::cos(angle);
          s[row * half + i] = std::sin(angle);
        }
      }
    });
  }
};

struct Rotary::Angles {
  Tensor positions, cosines, sines;
};

namespace {

void rotate(const Tensor& x, const Tensor& y, const Rotary::Angles& angles, bool inverse) {
  RECORD_FUNCTION("loom::rotary", {});
  rows::dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::RotaryArgs<T> args;
    args.x = rows::read<T>(x);
    args.y = rows::write<T>(y);
    args.positions = angles.positions.const_data_ptr<int64_t>();
    args.cosines = angles.cosines.const_data_ptr<T>();
    args.sines = angles.sines.const_data_ptr<T>();
    args.half = angles.cosines.size(1);
    args.heads = x.size(1) / (2 * args.half);
    args.inverse = inverse;
    rows::parallel(x.size(0), x.size(1),
                   [&](int64_t begin, int64_t end) { kernels::kernel_set<T>().rotary(args, begin, end); });
  });
}

Tensor rotated(const Tensor& x, const Rotary::Angles& angles, bool inverse) {
  const Tensor wide = rows::work_tensor(x);
  Tensor y = at::empty(x.sizes(), wide.options());
  rotate(wide, y, angles, inverse);
  return y.to(x.scalar_type());
}

// By ATen; autograd differentiates it.
Tensor composed(const Tensor& x, const Rotary::Angles& angles) {
  const int64_t half = angles.cosines.size(1);
  const Tensor c = angles.cosines.index_select(0, angles.positions).unsqueeze(1);
  const Tensor s = angles.sines.index_select(0, angles.positions).unsqueeze(1);
  const Tensor heads = x.to(rows::work_dtype(x)).reshape({x.size(0), -1, 2 * half});
  const Tensor a = heads.narrow(2, 0, half), b = heads.narrow(2, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, 2).reshape(x.sizes()).to(x.scalar_type());
}

}  // namespace

Rotary::Rotary(int64_t head_dim, double theta, std::string partition)
    : head_dim_(head_dim), partition_(std::move(partition)), tables_(std::make_shared<Tables>()) {
  if (head_dim <= 0 || head_dim % 2 != 0) throw PluginError(concat("rotary: head_dim must be even, found ", head_dim));
  tables_->half = head_dim / 2;
  tables_->theta = theta;
}

Rotary::Angles Rotary::angles(const Tensor& like, UnitContext& ctx) const {
  const Segments& segments = ctx.segments_of(like, partition_);
  if (segments.position_axes != 1)
    throw PluginError(concat("rotary: one position axis expected, found ", segments.position_axes));
  int64_t last = 0;
  for (const int64_t position : segments.positions) {
    if (position < 0) throw PluginError(concat("rotary: position ", position));
    last = std::max(last, position);
  }
  Angles angles;
  angles.positions = ctx.positions(segments).reshape({-1});
  std::tie(angles.cosines, angles.sines) = tables_->upto(last + 1, rows::work_dtype(like), like.device());
  return angles;
}

Tensor Rotary::operator()(const Tensor& x, UnitContext& ctx) const {
  const int64_t rows = ctx.segments_of(x, partition_).rows();
  LOOM_CHECK(x.dim() == 2 && x.size(0) == rows && x.size(1) % head_dim_ == 0, "rotary: shape ", x.sizes(), ", ", rows,
             " rows and heads of ", head_dim_, " expected");
  const Angles made = angles(x, ctx);
  if (backend_of(x) != Backend::cpu) return composed(x, made);
  Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = rotated(x, made, false);
  }
  return differentiable(
      y, {x}, {}, [made](const BackwardCall& call) { return std::vector<Tensor>{rotated(call.grad, made, true)}; });
}

std::function<void(const Tensor& x, bool inverse)> Rotary::turner(const Tensor& like, UnitContext& ctx) const {
  return [made = angles(like, ctx), head_dim = head_dim_](const Tensor& x, bool inverse) {
    LOOM_CHECK(x.dim() == 2 && x.size(0) == made.positions.size(0) && x.size(1) % head_dim == 0, "rotary: shape ",
               x.sizes(), ", ", made.positions.size(0), " rows and heads of ", head_dim, " expected");
    rotate(x, x, made, inverse);
  };
}

}  // namespace loom
