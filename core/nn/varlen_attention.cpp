// Validation, division into tasks, threads and autograd of packed attention; the arithmetic is in
// kernels/attention_body.h. A task is one (range, key/value head): it alone writes its rows of dk and dv, so the result
// depends neither on the number of threads nor on the neighbours. Tasks are handed out one by one, since ranges differ
// in length.
#include "core/nn/varlen_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>

#include "core/base/error.h"
#include "core/nn/differentiable.h"
#include "core/nn/flops.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionTask;

void check_matrix(const char* name, const Tensor& x, int64_t width) {
  LOOM_CHECK(x.dim() == 2 && x.size(1) == width, "attention: ", name, " has shape ", x.sizes(), ", expected [rows, ",
             width, "]");
  LOOM_CHECK((x.is_cpu() || x.is_meta()) && at::isFloatingType(x.scalar_type()), "attention: ", name, " is ",
             x.scalar_type(), " on ", x.device(), "; this kernel takes floating point on cpu");
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
  LOOM_CHECK(shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim > 0,
             "attention: ", shape.heads, " heads, ", shape.kv_heads, " key/value heads of width ", shape.head_dim);
  check_matrix("query", q, shape.heads * shape.head_dim);
  check_matrix("key", k, shape.kv_heads * shape.head_dim);
  check_matrix("value", v, shape.kv_heads * shape.head_dim);
  LOOM_CHECK(k.size(0) == v.size(0), "attention: ", k.size(0), " keys and ", v.size(0), " values");
  LOOM_CHECK(q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type(), "attention: query is ",
             q.scalar_type(), ", key ", k.scalar_type(), ", value ", v.scalar_type());
  check_ranges(ranges, q.size(0), k.size(0));
}

// Ranges with common key rows go into one group, which one thread works through in order.
std::vector<std::vector<size_t>> groups_of_keys(const std::vector<AttentionRange>& ranges) {
  std::vector<size_t> order;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].q_rows > 0 && ranges[i].k_rows > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranges[a].k_begin < ranges[b].k_begin; });
  std::vector<std::vector<size_t>> groups;
  int64_t end = -1;
  for (const size_t i : order) {
    if (groups.empty() || ranges[i].k_begin >= end) groups.emplace_back();
    groups.back().push_back(i);
    end = std::max(end, ranges[i].k_begin + ranges[i].k_rows);
  }
  return groups;
}

template <class T, class Run>
void run_tasks(const std::vector<AttentionRange>& ranges, const VarlenShape& shape, bool backward, const Run& run) {
  const std::vector<std::vector<size_t>> groups = groups_of_keys(ranges);
  if (groups.empty()) return;
  int64_t longest = 0, work = 0;
  for (const AttentionRange& r : ranges) {
    longest = std::max(longest, r.k_rows);
    work += r.q_rows * r.k_rows * shape.heads * shape.head_dim;
  }
  const int64_t scratch = kernels::kernel_set<T>().attention_scratch(shape.head_dim, longest, backward);
  const int64_t tasks = static_cast<int64_t>(groups.size()) * shape.kv_heads;
  const int64_t threads = work < 100000 ? 1 : std::min<int64_t>(tasks, at::get_num_threads());
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
    const std::unique_ptr<T[]> memory(new T[scratch + 16]);  // room to start on a 64-byte border
    void* start = memory.get();
    size_t space = static_cast<size_t>(scratch + 16) * sizeof(T);
    T* aligned = static_cast<T*>(std::align(64, static_cast<size_t>(scratch) * sizeof(T), start, space));
    for (int64_t task = next++; task < tasks; task = next++) {
      for (const size_t i : groups[task / shape.kv_heads]) {
        const AttentionRange& r = ranges[i];
        run(AttentionTask{r.q_begin, r.q_rows, r.k_begin, r.k_rows, task % shape.kv_heads}, aligned);
      }
    }
  });
}

template <class T>
AttentionArgs<T> common_args(const Tensor& q, const Tensor& k, const Tensor& v, const VarlenShape& shape) {
  AttentionArgs<T> args;
  args.q = rows::read<T>(q);
  args.k = rows::read<T>(k);
  args.v = rows::read<T>(v);
  args.heads = shape.heads;
  args.kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.causal = shape.causal;
  args.scale = static_cast<T>(shape.scale);
  args.window = shape.window;
  return args;
}

// Two products forward. Five backward, of which one makes the scores again.
void count_attention(const std::vector<AttentionRange>& ranges, const VarlenShape& shape, int products, bool again) {
  if (flop_sink() == nullptr) return;
  const ComputedAgain scope(again);
  const double cells = attention_cells(ranges, shape.causal, shape.window);
  count_flops(products * 2.0 * static_cast<double>(shape.head_dim * shape.heads) * cells, true);
}

template <class T>
void forward_typed(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                   const VarlenShape& shape, VarlenResult& result) {
  AttentionArgs<T> args = common_args<T>(q, k, v, shape);
  args.out = rows::write<T>(result.output);
  args.lse = rows::write<T>(result.lse);
  auto* run = kernels::kernel_set<T>().attention_forward;
  run_tasks<T>(ranges, shape, false, [&](const AttentionTask& task, T* scratch) { run(args, task, scratch); });
}

template <class T>
void backward_typed(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                    const VarlenResult& result, const std::vector<AttentionRange>& ranges, const VarlenShape& shape,
                    VarlenGradients& grads) {
  AttentionArgs<T> args = common_args<T>(q, k, v, shape);
  args.dout = rows::read<T>(grad_output);
  args.done = rows::read<T>(result.output);
  args.dlse = rows::read<T>(result.lse);
  args.dq = rows::write<T>(grads.dq);
  args.dk = rows::write<T>(grads.dk);
  args.dv = rows::write<T>(grads.dv);
  auto* run = kernels::kernel_set<T>().attention_backward;
  run_tasks<T>(ranges, shape, true, [&](const AttentionTask& task, T* scratch) { run(args, task, scratch); });
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
      int64_t seen = causal ? std::clamp<int64_t>(i + 1 + r.k_rows - r.q_rows, 0, r.k_rows) : r.k_rows;
      if (window > 0) seen = std::min(seen, window);
      cells += static_cast<double>(seen);
    }
  }
  return cells;
}

VarlenResult varlen_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  check_inputs(q, k, v, ranges, shape);
  const c10::NoGradGuard no_grad;
  const Tensor wide_q = rows::work_tensor(q), wide_k = rows::work_tensor(k), wide_v = rows::work_tensor(v);
  VarlenResult result;
  result.output = at::zeros({q.size(0), q.size(1)}, wide_q.options());
  result.lse = at::full({q.size(0), shape.heads}, -std::numeric_limits<double>::infinity(), wide_q.options());
  count_attention(ranges, shape, 2, false);
  rows::dispatch(wide_q,
                 [&](auto zero) { forward_typed<decltype(zero)>(wide_q, wide_k, wide_v, ranges, shape, result); });
  result.output = result.output.to(q.scalar_type());
  return result;
}

VarlenGradients varlen_attention_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                          const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                                          const VarlenShape& shape) {
  check_inputs(q, k, v, ranges, shape);
  check_matrix("gradient", grad_output, q.size(1));
  check_matrix("output", result.output, q.size(1));
  check_matrix("log-sum-exp", result.lse, shape.heads);
  LOOM_CHECK(grad_output.size(0) == q.size(0) && result.output.size(0) == q.size(0) && result.lse.size(0) == q.size(0),
             "attention: ", q.size(0), " queries, gradient ", grad_output.sizes(), ", output ", result.output.sizes());
  const c10::NoGradGuard no_grad;
  const Tensor wide_q = rows::work_tensor(q), wide_k = rows::work_tensor(k), wide_v = rows::work_tensor(v);
  const Tensor wide_grad = rows::work_tensor(grad_output.to(q.scalar_type()));
  const VarlenResult wide{rows::work_tensor(result.output), rows::work_tensor(result.lse)};
  VarlenGradients grads;
  grads.dq = at::zeros({q.size(0), q.size(1)}, wide_q.options());
  grads.dk = at::zeros({k.size(0), k.size(1)}, wide_q.options());
  grads.dv = at::zeros({v.size(0), v.size(1)}, wide_q.options());
  count_attention(ranges, shape, 4, false);
  count_attention(ranges, shape, 1, true);
  rows::dispatch(wide_q, [&](auto zero) {
    backward_typed<decltype(zero)>(wide_grad, wide_q, wide_k, wide_v, wide, ranges, shape, grads);
  });
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

}  // namespace loom
