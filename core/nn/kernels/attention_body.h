#pragma once
// Attention of one (range, key/value head). The query heads of the group are rows of one matrix: row r is query row
// r / group of head r % group, which is also how they lie in memory. Keys are taken in blocks that a cache holds, with
// the softmax rescaled as larger scores come (Milakov & Gimelshein 2018, Dao 2022). Blocks begin at multiples of their
// size in the range, so a row's order of operations depends on the range alone, not on who computes which rows.
#include "core/nn/kernels/attention_tile.h"
#include "core/nn/kernels/kernel_set.h"

namespace loom::kernels {
namespace {

constexpr int64_t kTileQueries = 64;  // rows of scores at a time

// What a block of keys needs, with its gradients, stays in a second-level cache of 1 MB.
constexpr int64_t kMostKeys = 256;
constexpr int64_t block_keys(int64_t head_dim) { return head_dim <= 80 ? kMostKeys : head_dim <= 128 ? 192 : 192; }
constexpr int64_t chunk_rows(int64_t head_dim) { return head_dim <= 128 ? 1024 : 512; }

template <class T>
struct Sizes {
  int64_t dim, padded, broad, keys;
  int64_t line, wide;  // elements between rows of scores and of queries, not multiples of a page
  explicit Sizes(int64_t head_dim)
      : dim(head_dim),
        padded(round_up(head_dim, kWidth<T>)),
        broad(round_up(head_dim, kBroad<T>)),
        keys(block_keys(head_dim)),
        line(keys + kWidth<T>),
        wide(broad + kWidth<T>) {}
};

template <class T>
AttentionSizes attention_sizes(int64_t head_dim) {
  const Sizes<T> s(head_dim);
  const int64_t chunk = chunk_rows(head_dim);
  AttentionSizes out;
  out.keys = s.keys;
  out.rows = kTileQueries;
  out.chunk = chunk;
  out.forward = s.keys * (s.dim + s.broad) + chunk * (s.dim + s.padded + kWidth<T> + 1) + kTileQueries * s.line;
  out.backward = s.keys * (2 * s.dim + s.broad + 2 * s.padded) + kTileQueries * (2 * s.wide + s.padded + 2 * s.line);
  return out;
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

// The keys that a row sees; both borders grow with the row.
template <class T>
struct Mask {
  int64_t group, keys, shift, window;
  bool causal;
  Mask(const AttentionArgs<T>& args, const AttentionTask& task)
      : group(args.heads / args.kv_heads),
        keys(task.k_rows),
        shift(task.k_rows - task.q_rows + 1 + task.later),
        window(args.window),
        causal(args.causal) {}
  Span operator()(int64_t row) const {
    const int64_t end = causal ? row / group + shift : keys;
    const int64_t high = larger_of(0, smaller_of(keys, end));
    return {window > 0 ? larger_of(0, smaller_of(high, end - window)) : 0, high};
  }
  // Of the keys of a block.
  Span in_block(int64_t row, int64_t begin, int64_t end) const {
    const Span seen = (*this)(row);
    return {larger_of(seen.low, begin) - begin, smaller_of(seen.high, end) - begin};
  }
};

// The columns of a block that each row tile needs; the largest of their ends is returned.
template <class T>
int64_t tile_spans(const Mask<T>& mask, int64_t first, int64_t rows, int64_t begin, int64_t end, Span* spans) {
  int64_t columns = 0;
  for (int64_t r = 0; r < rows; r += kTall) {
    const Span top = mask.in_block(first + r, begin, end);
    const Span bottom = mask.in_block(first + smaller_of(rows, r + kTall) - 1, begin, end);
    const bool any = bottom.high > top.low && bottom.high > 0;
    spans[r / kTall] = any ? Span{top.low / kEdge<T> * kEdge<T>, bottom.high} : Span{};
    columns = larger_of(columns, spans[r / kTall].high);
  }
  return columns;
}

// Query-like rows of a task, counted from its first.
template <class T, class Pointer>
struct GroupRows {
  Pointer base;
  int64_t stride, group, dim;
  GroupRows(Pointer data, int64_t row_stride, const AttentionArgs<T>& args, const AttentionTask& task)
      : base(data + task.q_begin * row_stride + task.kv_head * (args.heads / args.kv_heads) * args.head_dim),
        stride(row_stride),
        group(args.heads / args.kv_heads),
        dim(args.head_dim) {}
  Pointer operator()(int64_t row) const { return base + row / group * stride + row % group * dim; }
};

template <class T>
T& per_row(Rows<T> x, const AttentionTask& task, int64_t group, int64_t row) {
  return x.data[(task.q_begin + row / group) * x.stride + task.kv_head * group + row % group];
}

inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }

template <class T>
constexpr T kLog2e = static_cast<T>(1.44269504088896340736);
template <class T>
constexpr T kInfinity = static_cast<T>(__builtin_inf());

// What the rows of a chunk have seen so far, in powers of two: the largest scaled score, the sum of the other ones'
// powers lane by lane, and the sum of values.
template <class T>
struct Seen {
  T* top;
  T* sums;
  T* values;
};

// Scores of a tile to powers of two, relative to the largest one up to now.
template <class T>
void softmax_tile(const Sizes<T>& size, const Mask<T>& mask, int64_t first, int64_t rows, int64_t begin, int64_t end,
                  const Span* spans, T scale, bool fresh, T* scores, const Seen<T>& seen) {
  constexpr int64_t kW = kWidth<T>;
  const Vec<T> lowest = broadcast<T>(-kInfinity<T>);
  for (int64_t part = 0; part < rows; part += kW) {
    const int64_t n = smaller_of(kW, rows - part);
    Span edges[kW];
    alignas(64) T largest[kW], factor[kW];
    Vec<T> tops[kW];
    for (int64_t i = 0; i < n; ++i) {
      const Span s = mask.in_block(first + part + i, begin, end);
      T* row = scores + (part + i) * size.line;
      Span& edge = edges[i];
      tops[i] = lowest;
      edge = s.empty() ? Span{} : Span{s.low / kW * kW, round_up(s.high, kW)};
      if (s.empty()) continue;
      if (s.low > edge.low) keep_lanes<T>(row + edge.low, s.low - edge.low, kW, -kInfinity<T>);
      if (s.high < edge.high) keep_lanes<T>(row + edge.high - kW, 0, s.high - edge.high + kW, -kInfinity<T>);
      Vec<T> chains[4] = {lowest, lowest, lowest, lowest};  // a comparison waits for the one before it in its chain
      int64_t c = edge.low;
      for (; c + 4 * kW <= edge.high; c += 4 * kW) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) chains[j] = larger<T>(load<T>(row + c + j * kW), chains[j]);
      }
      for (; c < edge.high; c += kW) chains[0] = larger<T>(load<T>(row + c), chains[0]);
      const Vec<T> top = larger<T>(larger<T>(chains[0], chains[1]), larger<T>(chains[2], chains[3]));
      tops[i] = top;
    }
    for (int64_t i = n; i < kW; ++i) tops[i] = lowest;
    Vec<T> now = join_lanes<T>([&](int i) { return tops[i]; }, [](auto a, auto b) { return larger<T>(b, a); }) * scale;
    T* kept = seen.top + part;
    if (!fresh) {
      const Vec<T> before = load<T>(kept);
      now = larger<T>(now, before);
      const Vec<T> base = now == lowest ? Vec<T>{} : now;
      store<T>(factor, power_of_two<T>(before - base));
    }
    store<T>(kept, now);
    store<T>(largest, now == lowest ? Vec<T>{} : now);
    for (int64_t i = 0; i < n; ++i) {
      const Span edge = edges[i], span = spans[(part + i) / kTall];
      T* row = scores + (part + i) * size.line;
      for (int64_t c = span.low; c < smaller_of(edge.low, span.high); c += kW) store<T>(row + c, Vec<T>{});
      for (int64_t c = larger_of(edge.high, span.low); c < span.high; c += kW) store<T>(row + c, Vec<T>{});
      Vec<T> sum{};
      for (int64_t c = edge.low; c < edge.high; c += kW) {
        const Vec<T> p = power_of_two<T>(load<T>(row + c) * scale - largest[i]);
        store<T>(row + c, p);
        sum += p;
      }
      T* sums = seen.sums + (part + i) * kW;
      if (!fresh) {
        sum += load<T>(sums) * factor[i];
        T* values = seen.values + (part + i) * size.padded;
        if (factor[i] != T{1}) {
          for (int64_t d = 0; d < size.padded; d += kW) store<T>(values + d, load<T>(values + d) * factor[i]);
        }
      }
      store<T>(sums, sum);
    }
  }
}

// Rows [task.first, task.last) of the group.
template <class T>
void attention_forward(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch) {
  constexpr int64_t kW = kWidth<T>;
  const Sizes<T> size(args.head_dim);
  const Mask<T> mask(args, task);
  const int64_t dim = size.dim, count = task.last - task.first, chunk = round_up(count, kHigh<T>);
  Bump<T> bump{scratch};
  T* keys = bump.take(size.keys * dim);
  T* values = bump.take(size.keys * size.broad);
  T* scores = bump.take(kTileQueries * size.line);
  T* queries = bump.take(chunk * dim);
  const Seen<T> all{bump.take(chunk), bump.take(chunk * kW), bump.take(chunk * size.padded)};
  const GroupRows<T, const T*> q(args.q.data, args.q.stride, args, task);
  pack_transposed<T, kHigh<T>>(
      count, dim, [&](int64_t r) { return q(task.first + r); }, queries);
  const int64_t low = mask(task.first).low, high = mask(task.last - 1).high;
  const T* k = args.k.data + task.k_begin * args.k.stride + task.kv_head * dim;
  const T* v = args.v.data + task.k_begin * args.v.stride + task.kv_head * dim;
  for (int64_t begin = low / size.keys * size.keys; begin < high; begin += size.keys) {
    const int64_t end = smaller_of(high, begin + size.keys);
    pack_transposed<T, kBroad<T>>(
        end - begin, dim, [&](int64_t r) { return k + (begin + r) * args.k.stride; }, keys);
    pack_rows<T>(
        end - begin, dim, [&](int64_t r) { return v + (begin + r) * args.v.stride; }, T{1}, values,
        size.keys * kBroad<T>);
    for (int64_t i = 0; i < count; i += kTileQueries) {
      const int64_t rows = smaller_of(kTileQueries, count - i), first = task.first + i;
      Span spans[kTileQueries / kTall];
      const int64_t columns = tile_spans(mask, first, rows, begin, end, spans);
      if (columns == 0) continue;
      const bool fresh = begin <= mask(first).low;
      const Seen<T> seen{all.top + i, all.sums + i * kW, all.values + i * size.padded};
      score_product<T, true>(rows, columns, dim, queries + i * dim, kHigh<T>, keys, scores, size.line, spans);
      softmax_tile<T>(size, mask, first, rows, begin, end, spans, args.scale * kLog2e<T>, fresh, scores, seen);
      span_product<T, false>(rows, size.padded, scores, size.line, values, kBroad<T>, size.keys * kBroad<T>,
                             seen.values, size.padded, spans, !fresh);
    }
  }
  const GroupRows<T, T*> out(args.out.data, args.out.stride, args, task);
  for (int64_t i = 0; i < count; i += kW) {
    const int64_t rows = smaller_of(kW, count - i);
    alignas(64) T total[kW];
    const Vec<T> sums = join_lanes<T>([&](int r) { return r < rows ? load<T>(all.sums + (i + r) * kW) : Vec<T>{}; },
                                      [](auto a, auto b) { return a + b; });
    store<T>(total, sums);
    for (int64_t r = 0; r < rows; ++r) {
      T* to = out(task.first + i + r);
      T& lse = per_row(args.lse, task, mask.group, task.first + i + r);
      const Span sees = mask(task.first + i + r);
      if (sees.empty()) {
        lse = -kInfinity<T>;
        for_vectors<T>(dim, [&](int64_t d, int64_t n) { store_n<T>(to + d, Vec<T>{}, n); });
        continue;
      }
      lse = all.top[i + r] / kLog2e<T> + logarithm(total[r]);
      const T inverse = T{1} / total[r];
      const T* from = all.values + (i + r) * size.padded;
      for_vectors<T>(dim, [&](int64_t d, int64_t n) { store_n<T>(to + d, load<T>(from + d) * inverse, n); });
    }
  }
}

}  // namespace
}  // namespace loom::kernels
