// Packed attention over ATen's kernels for GPUs: FlashAttention for half types, the memory-efficient kernel for float,
// the composition for what neither takes (double; a window in float). All three keep the log-sum-exp of each query in
// our layout, so that a kept result serves any of them. cuDNN's attention is not used: it plans anew for every new
// shape, and packs have a new one every step; its causal border lies at the beginnings of ranges instead of their ends.
//
// Calls of ATen's fused operations are in flash and efficient, the only places that depend on LibTorch's version; the
// arguments given exist in 2.8 to 2.14, in this order.
#include "core/nn/ops/cuda_pieces.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "core/base/gpu.h"
#include "core/nn/ops/attention_composed.h"
#include "core/nn/ops/cuda_layout.h"

namespace loom {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Kernel { flash = 1, efficient, composed };

// FlashAttention needs a GPU of compute capability 8.
bool has_flash(c10::Device device) {
  if (!device.is_cuda()) return true;
  thread_local int known = -1, major = 0;
  if (known != device.index()) {
    major = gpu_info(device.index()).major;
    known = device.index();
  }
  return major >= 8;
}

Kernel kernel_for(const Tensor& q, const VarlenShape& shape) {
  const at::ScalarType type = q.scalar_type();
  const bool half = type == at::kBFloat16 || type == at::kHalf, windowed = shape.causal && shape.window > 0;
  if (half && shape.head_dim <= 256 && has_flash(q.device())) return Kernel::flash;
  return (half || type == at::kFloat) && !windowed ? Kernel::efficient : Kernel::composed;
}

// Dense rows of the call, by heads.
struct Inputs {
  Tensor q, k, v;  // [rows, heads, width]
  const CudaLayout& layout;
  const VarlenShape& shape;
};

struct Outputs {
  Tensor output;  // [rows, heads, head_dim]
  Tensor lse;     // [rows, heads]
};

// ---- FlashAttention: [rows, heads, width], widths in eights; grouped heads, windows. Log-sum-exp as [heads, rows].
namespace flash {

Tensor padded(const Tensor& x) {
  const int64_t missing = (8 - x.size(2) % 8) % 8;
  return missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
}

struct Window {
  std::optional<int64_t> left, right;
};

Window window_of(const VarlenShape& shape) {
  if (!shape.causal || shape.window == 0) return {};
  return {shape.window - 1, 0};
}

Outputs forward(const Inputs& in) {
  const Window window = window_of(in.shape);
  const auto made =
      at::_flash_attention_forward(padded(in.q), padded(in.k), padded(in.v), in.layout.q_offsets, in.layout.k_offsets,
                                   in.layout.longest_q, in.layout.longest_k, 0.0, in.shape.causal, false,
                                   std::optional<double>(in.shape.scale), window.left, window.right);
  return {std::get<0>(made).narrow(2, 0, in.shape.head_dim), std::get<1>(made).t()};
}

VarlenGradients backward(const Inputs& in, const Outputs& out, const Tensor& grad) {
  const Window window = window_of(in.shape);
  const Tensor state = at::empty({2}, in.q.options().dtype(at::kUInt64)), unused = at::empty({}, state.options());
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      padded(grad), padded(in.q), padded(in.k), padded(in.v), padded(out.output), out.lse.t().contiguous(),
      in.layout.q_offsets, in.layout.k_offsets, in.layout.longest_q, in.layout.longest_k, 0.0, in.shape.causal, state,
      unused, std::optional<double>(in.shape.scale), window.left, window.right);
  const auto cut = [&](const Tensor& x) { return x.narrow(2, 0, in.shape.head_dim); };
  return {cut(dq), cut(dk), cut(dv)};
}

}  // namespace flash

// ---- Memory-efficient attention: [1, rows, heads, width], as many key heads as query heads. Log-sum-exp as [ranges,
// heads, longest range in whole blocks].
namespace efficient {

constexpr int64_t kNoMask = 0, kCausalAtTheEnds = 2;

int64_t mask_of(const VarlenShape& shape) { return shape.causal ? kCausalAtTheEnds : kNoMask; }

Tensor repeated(const Tensor& x, const VarlenShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  return (group == 1 ? x : x.repeat_interleave(group, 1)).unsqueeze(0);
}

Tensor summed_heads(const Tensor& x, const VarlenShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  const Tensor rows = x.squeeze(0);
  return group == 1 ? rows : rows.view({rows.size(0), shape.kv_heads, group, shape.head_dim}).sum(2);
}

Outputs forward(const Inputs& in) {
  const auto made = at::_efficient_attention_forward(in.q.unsqueeze(0), repeated(in.k, in.shape),
                                                     repeated(in.v, in.shape), std::nullopt, in.layout.q_offsets,
                                                     in.layout.k_offsets, in.layout.longest_q, in.layout.longest_k, 0.0,
                                                     mask_of(in.shape), true, std::optional<double>(in.shape.scale));
  const Tensor by_range = std::get<1>(made).transpose(1, 2).reshape({-1, in.shape.heads});
  return {std::get<0>(made).squeeze(0), by_range.index_select(0, in.layout.padded_rows)};
}

VarlenGradients backward(const Inputs& in, const Outputs& out, const Tensor& grad) {
  const CudaLayout& layout = in.layout;
  const auto ranges = static_cast<int64_t>(layout.ranges.size());
  const Tensor lse = at::full({ranges * layout.padded_q, in.shape.heads}, kInfinity, out.lse.options())
                         .index_copy_(0, layout.padded_rows, out.lse)
                         .view({ranges, layout.padded_q, in.shape.heads})
                         .transpose(1, 2)
                         .contiguous();
  const Tensor seed = at::zeros({}, at::kLong), offset = at::zeros({}, at::kLong);  // of dropout
  const auto made = at::_efficient_attention_backward(
      grad.unsqueeze(0), in.q.unsqueeze(0), repeated(in.k, in.shape), repeated(in.v, in.shape), std::nullopt,
      out.output.unsqueeze(0), layout.q_offsets, layout.k_offsets, layout.longest_q, layout.longest_k, lse, 0.0, seed,
      offset, mask_of(in.shape), false, std::optional<double>(in.shape.scale));
  return {std::get<0>(made).squeeze(0), summed_heads(std::get<1>(made), in.shape),
          summed_heads(std::get<2>(made), in.shape)};
}

}  // namespace efficient

Tensor by_heads(const Tensor& x, const Tensor& rows, int64_t heads, int64_t width) {
  return CudaLayout::gathered(x, rows).view({-1, heads, width});
}

Tensor flat(const Tensor& x) { return x.reshape({x.size(0), -1}); }

Inputs inputs_of(const Tensor& q, const Tensor& k, const Tensor& v, const CudaLayout& layout,
                 const VarlenShape& shape) {
  return {by_heads(q, layout.q_rows, shape.heads, shape.head_dim),
          by_heads(k, layout.k_rows, shape.kv_heads, shape.head_dim),
          by_heads(v, layout.k_rows, shape.kv_heads, shape.head_dim), layout, shape};
}

VarlenResult attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                               const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  const c10::NoGradGuard no_grad;
  const Kernel kernel = kernel_for(q, shape);
  if (kernel == Kernel::composed) {
    VarlenResult result;
    result.output = attention_composed(q, k, v, ranges, shape, &result.lse);
    return result;
  }
  const auto layout = cuda_layout(ranges, shape, q.size(0), k.size(0), q.device());
  if (layout->ranges.empty()) {
    return {at::zeros_like(q), at::full({q.size(0), shape.heads}, -kInfinity, q.options().dtype(at::kFloat))};
  }
  const Inputs in = inputs_of(q, k, v, *layout, shape);
  const Outputs out = kernel == Kernel::flash ? flash::forward(in) : efficient::forward(in);
  return {CudaLayout::placed(flat(out.output), layout->q_rows, q.size(0), 0),
          CudaLayout::placed(out.lse.contiguous(), layout->q_rows, q.size(0), -kInfinity)};
}

VarlenGradients attention_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                   const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                                   const VarlenShape& shape) {
  const c10::NoGradGuard no_grad;
  const Kernel kernel = kernel_for(q, shape);
  if (kernel == Kernel::composed) return attention_backward_composed(grad_output, q, k, v, result, ranges, shape);
  const auto layout = cuda_layout(ranges, shape, q.size(0), k.size(0), q.device());
  if (layout->ranges.empty()) return {at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
  const Inputs in = inputs_of(q, k, v, *layout, shape);
  const Outputs out{by_heads(result.output.to(q.scalar_type()), layout->q_rows, shape.heads, shape.head_dim),
                    CudaLayout::gathered(result.lse, layout->q_rows)};
  const Tensor grad = by_heads(grad_output.to(q.scalar_type()), layout->q_rows, shape.heads, shape.head_dim);
  const VarlenGradients made =
      kernel == Kernel::flash ? flash::backward(in, out, grad) : efficient::backward(in, out, grad);
  return {CudaLayout::placed(flat(made.dq), layout->q_rows, q.size(0), 0),
          CudaLayout::summed(flat(made.dk), layout->k_rows, k.size(0)),
          CudaLayout::summed(flat(made.dv), layout->k_rows, v.size(0))};
}

}  // namespace

const CudaPieces* cuda_pieces() {
  static constexpr CudaPieces kPieces{&attention_forward, &attention_backward};
  return &kPieces;
}

}  // namespace loom
