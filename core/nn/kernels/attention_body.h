#pragma once
// Attention of one (range, key/value head): keys and values are packed once for all query heads of the group, then
// tiles of query rows take whole rows of scores (no online rescaling), softmax and product with the values. The
// backward recomputes the probabilities from the log-sum-exp (Dao 2023) and is the only writer of its dk and dv.
#include "core/nn/kernels/gemm.h"
#include "core/nn/kernels/kernel_set.h"

namespace loom::kernels {
namespace {

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Query rows of a tile: as many as keep the scores in a cache of usual size. Depends on the range alone.
inline int64_t tile_rows(int64_t k_rows) { return k_rows <= 1024 ? 32 : k_rows <= 4096 ? 16 : 8; }

template <class T>
struct Sizes {
  int64_t dim, keys, panels, rows;
  Sizes(int64_t head_dim, int64_t k_rows)
      : dim(round_up(head_dim, kWidth<T>)),
        keys(round_up(k_rows, kPanel<T>)),
        panels(keys / kPanel<T>),
        rows(tile_rows(k_rows)) {}
};

template <class T>
int64_t attention_scratch(int64_t head_dim, int64_t k_rows, bool backward) {
  const Sizes<T> s(head_dim, k_rows);
  const int64_t packed = s.keys * (head_dim + s.dim), tile = s.rows * (s.keys + 2 * s.dim);
  return backward ? s.keys * (2 * head_dim + 3 * s.dim) + s.rows * (2 * s.keys + 3 * s.dim) : packed + tile;
}

// Hands out consecutive pieces of the scratch.
template <class T>
struct Bump {
  T* next;
  T* take(int64_t n) {
    T* piece = next;
    next += n;
    return piece;
  }
};

// [rows, dim] -> panels of [dim, kPanel]; the missing columns of the last panel are zero.
template <class T>
void pack_transposed(const T* x, int64_t stride, int64_t rows, int64_t dim, T* out) {
  constexpr int64_t kW = kWidth<T>;
  for (int64_t r = 0; r < rows; r += kPanel<T>, out += dim * kPanel<T>) {
    for (int64_t half = 0; half < kPanel<T>; half += kW) {
      const T* in = x + (r + half) * stride;
      const int64_t left = rows - r - half, n = left < 0 ? 0 : left < kW ? left : kW;
      int64_t d = 0;
      if (n == kW) {
        for (; d + kW <= dim; d += kW) transpose_square<T>(in + d, stride, out + d * kPanel<T> + half, kPanel<T>);
      }
      for (; d < dim; ++d) {
        T* row = out + d * kPanel<T> + half;
        for (int64_t c = 0; c < n; ++c) row[c] = in[c * stride + d];
        for (int64_t c = n; c < kW; ++c) row[c] = T{0};
      }
    }
  }
}

// [rows, dim] -> contiguous [rows, padded], times factor; the padding is zero.
template <class T>
void pack_rows(const T* x, int64_t stride, int64_t rows, int64_t dim, int64_t padded, T factor, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for_vectors<T>(
        dim, [&](int64_t d, int64_t n) { store<T>(out + r * padded + d, load_n<T>(x + r * stride + d, n) * factor); });
  }
}

template <class T>
void fill(T* x, int64_t n, T value) {
  for (int64_t i = 0; i < n; ++i) x[i] = value;
}

// Which keys a query row sees: [low, high).
struct Visible {
  int64_t low, high;
};

template <class T>
Visible visible(const AttentionArgs<T>& args, const AttentionTask& task, int64_t row) {
  int64_t high = task.k_rows;
  if (args.causal) high = row + 1 + task.k_rows - task.q_rows;
  if (high > task.k_rows) high = task.k_rows;
  if (high < 0) high = 0;
  int64_t low = args.window > 0 ? high - args.window : 0;
  if (low < 0) low = 0;
  return {low, high};
}

// Scores of a row -> exp(score - largest), zero outside what it sees. Columns count from `first`.
template <class T>
T softmax_row(T* scores, Visible seen, int64_t first, int64_t columns, T* largest) {
  constexpr int64_t kW = kWidth<T>;
  const int64_t low = seen.low - first, high = seen.high - first;
  if (high <= low) {
    fill<T>(scores, columns, T{0});
    *largest = -__builtin_inf();
    return T{0};
  }
  const int64_t begin = low / kW * kW, end = round_up(high, kW);
  fill<T>(scores, begin, T{0});
  fill<T>(scores + begin, low - begin, static_cast<T>(-__builtin_inf()));
  fill<T>(scores + high, end - high, static_cast<T>(-__builtin_inf()));
  fill<T>(scores + end, columns - end, T{0});
  Vec<T> top = load<T>(scores + begin);
  for (int64_t c = begin + kW; c < end; c += kW) top = larger<T>(load<T>(scores + c), top);
  *largest = largest_lane<T>(top);
  Vec<T> sum{};
  for (int64_t c = begin; c < end; c += kW) {
    const Vec<T> p = exponential<T>(load<T>(scores + c) - *largest);
    store<T>(scores + c, p);
    sum += p;
  }
  return sum_lanes<T>(sum);
}

inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }

template <class T>
void attention_forward(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch) {
  const int64_t dim = args.head_dim, group = args.heads / args.kv_heads;
  const Sizes<T> size(dim, task.k_rows);
  Bump<T> bump{scratch};
  T* keys = bump.take(size.keys * dim);
  T* values = bump.take(size.keys * size.dim);
  T* query = bump.take(size.rows * size.dim);
  T* scores = bump.take(size.rows * size.keys);
  T* result = bump.take(size.rows * size.dim);
  const int64_t kv_column = task.kv_head * dim;
  pack_transposed<T>(args.k.data + task.k_begin * args.k.stride + kv_column, args.k.stride, task.k_rows, dim, keys);
  pack_rows<T>(args.v.data + task.k_begin * args.v.stride + kv_column, args.v.stride, task.k_rows, dim, size.dim, T{1},
               values);
  for (int64_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
    for (int64_t i = 0; i < task.q_rows; i += size.rows) {
      const int64_t rows = task.q_rows - i < size.rows ? task.q_rows - i : size.rows;
      const int64_t high = visible(args, task, i + rows - 1).high;
      const int64_t first = visible(args, task, i).low / kPanel<T> * kPanel<T>;
      const int64_t columns = high > first ? round_up(high - first, kWidth<T>) : 0;
      const int64_t row0 = task.q_begin + i;
      pack_rows<T>(args.q.data + row0 * args.q.stride + head * dim, args.q.stride, rows, dim, size.dim, args.scale,
                   query);
      gemm<T, false>(rows, columns, dim, query, size.dim, {keys + first * dim, kPanel<T>, dim * kPanel<T>}, scores,
                     size.keys, false);
      T sums[32];
      for (int64_t r = 0; r < rows; ++r) {
        T largest = 0;
        sums[r] = softmax_row<T>(scores + r * size.keys, visible(args, task, i + r), first, columns, &largest);
        args.lse.data[(row0 + r) * args.lse.stride + head] =
            sums[r] > 0 ? largest + logarithm(sums[r]) : largest + sums[r];
      }
      gemm<T, false>(rows, size.dim, high > first ? high - first : 0, scores, size.keys,
                     {values + first * size.dim, size.dim, kPanel<T>}, result, size.dim, false);
      for (int64_t r = 0; r < rows; ++r) {
        const T inverse = sums[r] == 0 ? T{0} : T{1} / sums[r];
        T* out = args.out.data + (row0 + r) * args.out.stride + head * dim;
        for_vectors<T>(
            dim, [&](int64_t d, int64_t n) { store_n<T>(out + d, load<T>(result + r * size.dim + d) * inverse, n); });
      }
    }
  }
}

// Scores and gradients of probabilities of a row -> probabilities and gradients of scores.
template <class T>
void softmax_backward_row(T* scores, T* grads, Visible seen, int64_t first, int64_t columns, T lse, T delta) {
  constexpr int64_t kW = kWidth<T>;
  const int64_t low = seen.low - first, high = seen.high - first;
  if (high <= low) {
    fill<T>(scores, columns, T{0});
    fill<T>(grads, columns, T{0});
    return;
  }
  const int64_t begin = low / kW * kW, end = round_up(high, kW);
  for (int64_t c = begin; c < end; c += kW) {
    const Vec<T> p = exponential<T>(load<T>(scores + c) - lse);
    store<T>(scores + c, p);
    store<T>(grads + c, p * (load<T>(grads + c) - delta));
  }
  fill<T>(scores, low, T{0});
  fill<T>(grads, low, T{0});
  fill<T>(scores + high, columns - high, T{0});
  fill<T>(grads + high, columns - high, T{0});
}

template <class T>
void attention_backward(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch) {
  const int64_t dim = args.head_dim, group = args.heads / args.kv_heads;
  const Sizes<T> size(dim, task.k_rows);
  Bump<T> bump{scratch};
  T* keys_t = bump.take(size.keys * dim);
  T* values_t = bump.take(size.keys * dim);
  T* keys = bump.take(size.keys * size.dim);
  T* dkeys = bump.take(size.keys * size.dim);
  T* dvalues = bump.take(size.keys * size.dim);
  T* query = bump.take(size.rows * size.dim);
  T* dout = bump.take(size.rows * size.dim);
  T* dquery = bump.take(size.rows * size.dim);
  T* scores = bump.take(size.rows * size.keys);
  T* grads = bump.take(size.rows * size.keys);
  const int64_t kv_column = task.kv_head * dim;
  const T* k = args.k.data + task.k_begin * args.k.stride + kv_column;
  pack_transposed<T>(k, args.k.stride, task.k_rows, dim, keys_t);
  pack_transposed<T>(args.v.data + task.k_begin * args.v.stride + kv_column, args.v.stride, task.k_rows, dim, values_t);
  pack_rows<T>(k, args.k.stride, task.k_rows, dim, size.dim, T{1}, keys);
  fill<T>(dkeys, size.keys * size.dim, T{0});
  fill<T>(dvalues, size.keys * size.dim, T{0});
  for (int64_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
    for (int64_t i = 0; i < task.q_rows; i += size.rows) {
      const int64_t rows = task.q_rows - i < size.rows ? task.q_rows - i : size.rows;
      const int64_t high = visible(args, task, i + rows - 1).high;
      const int64_t first = visible(args, task, i).low / kPanel<T> * kPanel<T>;
      if (high <= first) continue;
      const int64_t columns = round_up(high - first, kWidth<T>), row0 = task.q_begin + i;
      pack_rows<T>(args.q.data + row0 * args.q.stride + head * dim, args.q.stride, rows, dim, size.dim, args.scale,
                   query);
      pack_rows<T>(args.dout.data + row0 * args.dout.stride + head * dim, args.dout.stride, rows, dim, size.dim, T{1},
                   dout);
      const Panels<T> k_panels{keys_t + first * dim, kPanel<T>, dim * kPanel<T>};
      const Panels<T> v_panels{values_t + first * dim, kPanel<T>, dim * kPanel<T>};
      gemm<T, false>(rows, columns, dim, query, size.dim, k_panels, scores, size.keys, false);
      gemm<T, false>(rows, columns, dim, dout, size.dim, v_panels, grads, size.keys, false);
      for (int64_t r = 0; r < rows; ++r) {
        const T* done = args.done.data + (row0 + r) * args.done.stride + head * dim;
        Vec<T> dot{};
        for_vectors<T>(dim,
                       [&](int64_t d, int64_t n) { dot += load_n<T>(done + d, n) * load<T>(dout + r * size.dim + d); });
        softmax_backward_row<T>(scores + r * size.keys, grads + r * size.keys, visible(args, task, i + r), first,
                                columns, args.dlse.data[(row0 + r) * args.dlse.stride + head], sum_lanes<T>(dot));
      }
      const int64_t seen = high - first;
      gemm<T, false>(rows, size.dim, seen, grads, size.keys, {keys + first * size.dim, size.dim, kPanel<T>}, dquery,
                     size.dim, false);
      gemm<T, true>(seen, size.dim, rows, scores, size.keys, {dout, size.dim, kPanel<T>}, dvalues + first * size.dim,
                    size.dim, true);
      gemm<T, true>(seen, size.dim, rows, grads, size.keys, {query, size.dim, kPanel<T>}, dkeys + first * size.dim,
                    size.dim, true);
      for (int64_t r = 0; r < rows; ++r) {
        T* dq = args.dq.data + (row0 + r) * args.dq.stride + head * dim;
        for_vectors<T>(
            dim, [&](int64_t d, int64_t n) { store_n<T>(dq + d, load<T>(dquery + r * size.dim + d) * args.scale, n); });
      }
    }
  }
  for (int64_t r = 0; r < task.k_rows; ++r) {
    T* dk = args.dk.data + (task.k_begin + r) * args.dk.stride + kv_column;
    T* dv = args.dv.data + (task.k_begin + r) * args.dv.stride + kv_column;
    for_vectors<T>(dim, [&](int64_t d, int64_t n) {
      store_n<T>(dk + d, load_n<T>(dk + d, n) + load<T>(dkeys + r * size.dim + d), n);
      store_n<T>(dv + d, load_n<T>(dv + d, n) + load<T>(dvalues + r * size.dim + d), n);
    });
  }
}

}  // namespace
}  // namespace loom::kernels
