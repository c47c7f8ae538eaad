// Validation, choice of the implementation and autograd of packed attention; the work is in ops/attention_cpu,
// ops/attention_composed and, on a GPU, behind ops/cuda_pieces.
#include "core/nn/varlen_attention.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/nn/differentiable.h"
#include "core/nn/flops.h"
#include "core/nn/kernels/row_threads.h"
#include "core/nn/ops/attention_composed.h"
#include "core/nn/ops/attention_cpu.h"
#include "core/nn/ops/cuda_pieces.h"
#include "core/nn/ops/pieces.h"

namespace loom {
namespace {

void check_matrix(const char* name, const Tensor& x, int64_t width) {
  LOOM_CHECK(x.dim() == 2 && x.size(1) == width, "attention: ", name, " has shape ", x.sizes(), ", expected [rows, ",
             width, "]");
  LOOM_CHECK(at::isFloatingType(x.scalar_type()), "attention: ", name, " is ", x.scalar_type());
}

void check_ranges(const std::vector<AttentionRange>& ranges, int64_t q_rows, int64_t k_rows) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const AttentionRange& r : ranges) {
    LOOM_CHECK(r.q_begin >= 0 && r.q_rows >= 0 && r.q_begin + r.q_rows <= q_rows, "attention: query rows [", r.q_begin,
               ", ", r.q_begin + r.q_rows, ") of ", q_rows);
    LOOM_CHECK(r.k_begin >= 0 && r.k_rows >= 0 && r.k_begin + r.k_rows <= k_rows, "attention: key rows [", r.k_begin,
               ", ", r.k_begin + r.k_rows, ") of ", k_rows);
    if (r.q_rows > 0) spans.emplace_back(r.q_begin, r.q_begin + r.q_rows);
  }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) {
    LOOM_CHECK(spans[i - 1].second <= spans[i].first, "attention: two ranges have query row ", spans[i].first);
  }
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                  const VarlenShape& shape) {
  LOOM_CHECK(shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim > 0 &&
                 shape.scale > 0,
             "attention: ", shape.heads, " heads, ", shape.kv_heads, " key/value heads of width ", shape.head_dim,
             ", scale ", shape.scale);
  check_matrix("query", q, shape.heads * shape.head_dim);
  check_matrix("key", k, shape.kv_heads * shape.head_dim);
  check_matrix("value", v, shape.kv_heads * shape.head_dim);
  LOOM_CHECK(k.size(0) == v.size(0), "attention: ", k.size(0), " keys and ", v.size(0), " values");
  LOOM_CHECK(q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type(), "attention: query is ",
             q.scalar_type(), ", key ", k.scalar_type(), ", value ", v.scalar_type());
  check_ranges(ranges, q.size(0), k.size(0));
}

void check_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                    const VarlenResult& result, const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  check_inputs(q, k, v, ranges, shape);
  check_matrix("gradient", grad_output, q.size(1));
  check_matrix("output", result.output, q.size(1));
  check_matrix("log-sum-exp", result.lse, shape.heads);
  LOOM_CHECK(grad_output.size(0) == q.size(0) && result.output.size(0) == q.size(0) && result.lse.size(0) == q.size(0),
             "attention: ", q.size(0), " queries, gradient ", grad_output.sizes(), ", output ", result.output.sizes());
}

// Two products forward. Five backward, of which one makes the scores again.
void count_attention(const std::vector<AttentionRange>& ranges, const VarlenShape& shape, int products, bool again) {
  if (flop_sink() == nullptr) return;
  const ComputedAgain scope(again);
  const double cells = attention_cells(ranges, shape.causal, shape.window);
  count_flops(products * 2.0 * static_cast<double>(shape.head_dim * shape.heads) * cells, true);
}

void count_backward(const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  count_attention(ranges, shape, 4, false);
  count_attention(ranges, shape, 1, true);
}

// The GPU's kernels know the border at the ends of a range only.
Backend backend_for(const Tensor& q, const std::vector<AttentionRange>& ranges) {
  const Backend backend = backend_of(q);
  const bool later = std::any_of(ranges.begin(), ranges.end(), [](const AttentionRange& r) { return r.later != 0; });
  return backend == Backend::cuda && later ? Backend::composed : backend;
}

}  // namespace

double attention_cells(const std::vector<AttentionRange>& ranges, bool causal, int64_t window) {
  double cells = 0;
  for (const AttentionRange& r : ranges) {
    if (!causal && (window == 0 || window >= r.k_rows)) {
      cells += static_cast<double>(r.q_rows) * static_cast<double>(r.k_rows);
      continue;
    }
    for (int64_t i = 0; i < r.q_rows; ++i) {
      const int64_t end = causal ? i + 1 + r.k_rows - r.q_rows + r.later : r.k_rows;
      const int64_t begin = window > 0 ? std::max<int64_t>(end - window, 0) : 0;
      cells += static_cast<double>(std::max<int64_t>(std::min(end, r.k_rows) - begin, 0));
    }
  }
  return cells;
}

VarlenResult varlen_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  check_inputs(q, k, v, ranges, shape);
  const c10::NoGradGuard no_grad;
  RECORD_FUNCTION("loom::attention", {});
  const Backend backend = backend_for(q, ranges);
  if (backend == Backend::composed) {
    VarlenResult result;
    result.output = attention_composed(q, k, v, ranges, shape, &result.lse);
    return result;
  }
  count_attention(ranges, shape, 2, false);
  return backend == Backend::cuda ? cuda_pieces()->attention_forward(q, k, v, ranges, shape)
                                  : attention_forward_cpu(q, k, v, ranges, shape);
}

VarlenGradients varlen_attention_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                          const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                                          const VarlenShape& shape) {
  check_backward(grad_output, q, k, v, result, ranges, shape);
  const c10::NoGradGuard no_grad;
  RECORD_FUNCTION("loom::attention_backward", {});
  const Backend backend = backend_for(q, ranges);
  if (backend == Backend::composed) return attention_backward_composed(grad_output, q, k, v, result, ranges, shape);
  count_backward(ranges, shape);
  if (backend == Backend::cuda) return cuda_pieces()->attention_backward(grad_output, q, k, v, result, ranges, shape);
  const auto options = q.options().dtype(rows::work_dtype(q));
  VarlenGradients grads{at::empty(q.sizes(), options), at::empty(k.sizes(), options), at::empty(v.sizes(), options)};
  attention_backward_cpu(grad_output, q, k, v, result, ranges, shape, grads);
  for (Tensor* g : {&grads.dq, &grads.dk, &grads.dv}) *g = g->to(q.scalar_type());
  return grads;
}

Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                        const VarlenShape& shape, const VarlenResult* kept, VarlenResult* computed) {
  if (kept != nullptr) {
    check_inputs(q, k, v, ranges, shape);
    LOOM_CHECK(kept->output.sizes() == q.sizes(), "attention: the kept output has shape ", kept->output.sizes(),
               ", the query ", q.sizes());
  }
  const VarlenResult result = kept != nullptr ? *kept : varlen_attention_forward(q, k, v, ranges, shape);
  const Tensor values = result.output.detach();  // shares memory, has no history: no cycle through the graph
  if (computed != nullptr) *computed = {values, result.lse};
  return differentiable(
      result.output.detach(), {q, k, v}, {q, k, v, values, result.lse}, [ranges, shape](const BackwardCall& call) {
        const std::vector<Tensor>& s = call.saved;
        VarlenGradients grads = varlen_attention_backward(call.grad, s[0], s[1], s[2], {s[3], s[4]}, ranges, shape);
        return std::vector<Tensor>{grads.dq, grads.dk, grads.dv};
      });
}

Tensor fused_attention(const Tensor& qkv, std::function<void(const Tensor& heads, bool inverse)> turn,
                       const std::vector<AttentionRange>& ranges, const VarlenShape& shape, const VarlenResult* kept,
                       VarlenResult* computed) {
  const int64_t q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  check_matrix("qkv", qkv, q_width + 2 * kv_width);
  const auto columns = [q_width, kv_width](const Tensor& x) {
    return std::array<Tensor, 3>{x.narrow(1, 0, q_width), x.narrow(1, q_width, kv_width),
                                 x.narrow(1, q_width + kv_width, kv_width)};
  };
  VarlenResult result;
  {
    const c10::NoGradGuard no_grad;
    if (turn) turn(qkv.narrow(1, 0, q_width + kv_width), false);
    const auto [q, k, v] = columns(qkv);
    result = kept != nullptr ? *kept : varlen_attention_forward(q, k, v, ranges, shape);
  }
  const Tensor values = result.output.detach();
  if (computed != nullptr) *computed = {values, result.lse};
  return differentiable(result.output.detach(), {qkv}, {qkv, values, result.lse},
                        [columns, turn = std::move(turn), ranges, shape, q_width, kv_width](const BackwardCall& call) {
                          const c10::NoGradGuard no_grad;
                          const auto [q, k, v] = columns(call.saved[0]);
                          const VarlenResult made{call.saved[1], call.saved[2]};
                          check_backward(call.grad, q, k, v, made, ranges, shape);
                          const Tensor grad = at::empty(call.saved[0].sizes(), call.saved[0].options());
                          const auto [dq, dk, dv] = columns(grad);
                          {
                            RECORD_FUNCTION("loom::attention_backward", {});
                            count_backward(ranges, shape);
                            attention_backward_cpu(call.grad, q, k, v, made, ranges, shape, {dq, dk, dv});
                          }
                          if (turn) turn(grad.narrow(1, 0, q_width + kv_width), true);
                          return std::vector<Tensor>{grad};
                        });
}

}  // namespace loom
