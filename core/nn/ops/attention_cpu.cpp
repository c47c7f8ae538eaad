// Tasks of the forward are rows of one (range, key/value head), whose values do not depend on where they are cut; tasks
// of the backward are blocks of its keys, or all of them, since the order of additions is the same either way. So how
// finely work is cut may depend on the number of threads, and the result does not. Tasks are handed out one by one,
// the longest first.
#include "core/nn/ops/attention_cpu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <new>

#include "core/base/parallel.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionSizes;
using kernels::AttentionTask;

constexpr int64_t kSmallWork = 100000;          // pairs times width that one thread does at once
constexpr int64_t kTasksPerThread = 4;          // as many make an even end
constexpr size_t kLine = 64 / sizeof(int64_t);  // progress of two blocks does not share a cache line

// Memory of this thread, kept from call to call.
void* thread_scratch(size_t bytes) {
  struct Free {
    void operator()(void* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t size = 0;
  if (size < bytes) {
    memory.reset();
    size = 0;
    memory.reset(::operator new (bytes, std::align_val_t{64}));
    size = bytes;
  }
  return memory.get();
}

int64_t pairs(const AttentionRange& r, const VarlenShape& shape) {
  const bool triangle = shape.causal && r.q_rows <= r.k_rows;
  const int64_t keys = triangle ? r.k_rows - r.q_rows / 2 : r.k_rows;
  return r.q_rows * (shape.window > 0 ? std::min(shape.window, keys) : keys);
}

bool active(const AttentionRange& r) { return r.q_rows > 0 && r.k_rows > 0; }

int64_t thread_count(const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  int64_t work = 0;
  for (const AttentionRange& r : ranges) work += pairs(r, shape) * shape.heads * shape.head_dim;
  return work < kSmallWork ? 1 : at::get_num_threads();
}

// Runs `run(task index, scratch)` for all tasks, in order of their indices, each on the thread that is free.
template <class T, class Run>
void hand_out(int64_t tasks, int64_t threads, int64_t scratch, const Run& run) {
  std::atomic<int64_t> next{0};
  loom::parallel_for(0, std::min(threads, tasks), 1, [&](int64_t /*begin*/, int64_t /*end*/) {
    T* memory = static_cast<T*>(thread_scratch(static_cast<size_t>(scratch) * sizeof(T)));
    for (int64_t task = next++; task < tasks; task = next++) run(task, memory);
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

template <class T>
void forward_typed(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                   const VarlenShape& shape, const VarlenResult& result) {
  AttentionArgs<T> args = common_args<T>(q, k, v, shape);
  args.out = rows::write<T>(result.output);
  args.lse = rows::write<T>(result.lse);
  const AttentionSizes sizes = kernels::kernel_set<T>().attention_sizes(shape.head_dim);
  const int64_t threads = thread_count(ranges, shape), group = shape.heads / shape.kv_heads;
  int64_t chunk = sizes.chunk;
  const auto count = [&] {
    int64_t tasks = 0;
    for (const AttentionRange& r : ranges) {
      if (active(r)) tasks += (r.q_rows * group + chunk - 1) / chunk * shape.kv_heads;
    }
    return tasks;
  };
  while (threads > 1 && chunk / 2 % sizes.rows == 0 && chunk > sizes.rows && count() < kTasksPerThread * threads)
    chunk /= 2;
  struct Piece {
    const AttentionRange* range;
    int64_t first, last, cost;
  };
  std::vector<Piece> pieces;
  for (const AttentionRange& r : ranges) {
    if (!active(r)) continue;
    const int64_t all = r.q_rows * group;
    for (int64_t first = 0; first < all; first += chunk) {
      const int64_t last = std::min(all, first + chunk);
      // With a causal mask the last rows see most.
      const int64_t cost = pairs(r, shape) / r.q_rows * (last - first) * (shape.causal ? first + last : all);
      pieces.push_back({&r, first, last, cost / all});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
  auto* run = kernels::kernel_set<T>().attention_forward;
  hand_out<T>(static_cast<int64_t>(pieces.size()) * shape.kv_heads, threads, sizes.forward, [&](int64_t i, T* scratch) {
    const Piece& piece = pieces[static_cast<size_t>(i / shape.kv_heads)];
    const AttentionRange& r = *piece.range;
    AttentionTask task{r.q_begin, r.q_rows, r.k_begin, r.k_rows, i % shape.kv_heads, piece.first, piece.last, r.later};
    run(args, task, scratch);
  });
}

// Ranges with common key rows, which one thread works through in order.
struct KeyGroup {
  std::vector<size_t> ranges;
  int64_t begin = 0, end = 0, cost = 0;
};

std::vector<KeyGroup> groups_of_keys(const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  std::vector<size_t> order;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (active(ranges[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranges[a].k_begin < ranges[b].k_begin; });
  std::vector<KeyGroup> groups;
  for (const size_t i : order) {
    const AttentionRange& r = ranges[i];
    if (groups.empty() || r.k_begin >= groups.back().end) groups.push_back({{}, r.k_begin, r.k_begin, 0});
    KeyGroup& group = groups.back();
    group.ranges.push_back(i);
    group.end = std::max(group.end, r.k_begin + r.k_rows);
    group.cost += pairs(r, shape);
  }
  return groups;
}

// Blocks of keys of one group and key/value head.
struct Blocks {
  const KeyGroup* group;
  int64_t kv_head;
  int64_t only = -1;    // begin of the one block; -1 = all
  size_t progress = 0;  // of that block
};

template <class T>
void backward_typed(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                    const VarlenResult& result, const std::vector<AttentionRange>& ranges, const VarlenShape& shape,
                    const std::vector<KeyGroup>& sorted, const VarlenGradients& into) {
  AttentionArgs<T> args = common_args<T>(q, k, v, shape);
  args.dout = rows::read<T>(grad_output);
  args.done = rows::read<T>(result.output);
  args.dlse = rows::read<T>(result.lse);
  args.dq = rows::write<T>(into.dq);
  args.dk = rows::write<T>(into.dk);
  args.dv = rows::write<T>(into.dv);
  const AttentionSizes sizes = kernels::kernel_set<T>().attention_sizes(shape.head_dim);
  const int64_t threads = thread_count(ranges, shape);
  int64_t total = 0;
  for (const KeyGroup& group : sorted) total += group.cost;
  std::vector<Blocks> tasks;
  size_t blocks = 0;
  for (const KeyGroup& group : sorted) {
    const int64_t keys = group.end - group.begin;
    const bool cut = threads > 1 && group.ranges.size() == 1 && keys > sizes.keys &&
                     group.cost * threads * kTasksPerThread > total * shape.kv_heads;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      if (!cut) tasks.push_back({&group, head});
      for (int64_t begin = 0; cut && begin < keys; begin += sizes.keys)
        tasks.push_back({&group, head, begin, blocks++});
    }
  }
  std::vector<int64_t> progress(blocks * kLine, 0);
  auto* run = kernels::kernel_set<T>().attention_backward;
  hand_out<T>(static_cast<int64_t>(tasks.size()), threads, sizes.backward, [&](int64_t i, T* scratch) {
    const Blocks& blocks_of = tasks[static_cast<size_t>(i)];
    for (const size_t index : blocks_of.group->ranges) {
      const AttentionRange& r = ranges[index];
      AttentionTask task{r.q_begin, r.q_rows, r.k_begin, r.k_rows, blocks_of.kv_head, 0, 0, r.later};
      task.adds = blocks_of.group->ranges.size() > 1;
      if (blocks_of.only >= 0) {
        task.first = blocks_of.only;
        task.done = &progress[blocks_of.progress * kLine];
        if (task.first > 0) task.before = task.done - kLine;
        run(args, task, scratch);
        continue;
      }
      for (; task.first < r.k_rows; task.first += sizes.keys) run(args, task, scratch);
    }
  });
}

// Calls f(begin, rows) for the rows that no span covers. Spans do not overlap.
template <class F>
void for_gaps(std::vector<std::pair<int64_t, int64_t>> spans, int64_t rows, const F& f) {
  std::sort(spans.begin(), spans.end());
  int64_t at = 0;
  for (const auto& [begin, end] : spans) {
    if (begin > at) f(at, begin - at);
    at = std::max(at, end);
  }
  if (rows > at) f(at, rows - at);
}

std::vector<std::pair<int64_t, int64_t>> query_spans(const std::vector<AttentionRange>& ranges) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const AttentionRange& r : ranges) {
    if (active(r)) spans.emplace_back(r.q_begin, r.q_begin + r.q_rows);
  }
  return spans;
}

}  // namespace

VarlenResult attention_forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  const Tensor wide_q = rows::work_tensor(q), wide_k = rows::work_tensor(k), wide_v = rows::work_tensor(v);
  VarlenResult result;
  result.output = at::empty({q.size(0), q.size(1)}, wide_q.options());
  result.lse = at::empty({q.size(0), shape.heads}, wide_q.options());
  for_gaps(query_spans(ranges), q.size(0), [&](int64_t begin, int64_t rows) {
    result.output.narrow(0, begin, rows).zero_();
    result.lse.narrow(0, begin, rows).fill_(-std::numeric_limits<double>::infinity());
  });
  rows::dispatch(wide_q,
                 [&](auto zero) { forward_typed<decltype(zero)>(wide_q, wide_k, wide_v, ranges, shape, result); });
  result.output = result.output.to(q.scalar_type());
  return result;
}

void attention_backward_cpu(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                            const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                            const VarlenShape& shape, const VarlenGradients& into) {
  const Tensor wide_q = rows::work_tensor(q), wide_k = rows::work_tensor(k), wide_v = rows::work_tensor(v);
  const Tensor wide_grad = rows::work_tensor(grad_output.to(q.scalar_type()));
  const VarlenResult wide{rows::work_tensor(result.output), rows::work_tensor(result.lse)};
  std::vector<KeyGroup> groups = groups_of_keys(ranges, shape);
  std::vector<std::pair<int64_t, int64_t>> keys;
  for (const KeyGroup& group : groups) {
    if (group.ranges.size() == 1) keys.emplace_back(group.begin, group.end);
  }
  for_gaps(query_spans(ranges), q.size(0),
           [&](int64_t begin, int64_t rows) { into.dq.narrow(0, begin, rows).zero_(); });
  for_gaps(keys, k.size(0), [&](int64_t begin, int64_t rows) {
    into.dk.narrow(0, begin, rows).zero_();
    into.dv.narrow(0, begin, rows).zero_();
  });
  std::stable_sort(groups.begin(), groups.end(), [](const KeyGroup& a, const KeyGroup& b) { return a.cost > b.cost; });
  rows::dispatch(wide_q, [&](auto zero) {
    backward_typed<decltype(zero)>(wide_grad, wide_q, wide_k, wide_v, wide, ranges, shape, groups, into);
  });
}

}  // namespace loom
