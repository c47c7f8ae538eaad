#pragma once
// Backward of attention, for blocks of keys of one (range, key/value head): probabilities are made again from the
// log-sum-exp (Dao 2022), a block is the only writer of its rows of dk and dv, and rows of dq are added to block after
// block. Several threads may take blocks of one head: each adds to a tile of dq when the block before it has, so the
// order of additions is always the same.
#include <sched.h>

#include "core/nn/kernels/attention_body.h"

namespace loom::kernels {
namespace {

constexpr int64_t kAllTurns = INT64_MAX;

// Another thread of this process works on what is waited for; it took its block first.
inline void wait_until(const int64_t* progress, int64_t least) {
  for (int64_t spins = 0; __atomic_load_n(progress, __ATOMIC_ACQUIRE) < least; ++spins) {
    if (spins > 1000) sched_yield();
  }
}

template <class T>
struct TileRows {
  Span keys[kTileQueries];  // of the block
  T lse[kTileQueries], delta[kTileQueries];
};

// Scores and gradients of probabilities of a tile to probabilities and gradients of scores.
template <class T>
void softmax_backward_tile(const Sizes<T>& size, const TileRows<T>& of, int64_t rows, const Span* spans, T scale,
                           T* scores, T* grads) {
  constexpr int64_t kW = kWidth<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const Span s = of.keys[r], span = spans[r / kTall];
    const Span edge = s.empty() ? Span{} : Span{s.low / kW * kW, round_up(s.high, kW)};
    T* p = scores + r * size.line;
    T* g = grads + r * size.line;
    for (int64_t c = span.low; c < smaller_of(edge.low, span.high); c += kW) {
      store<T>(p + c, Vec<T>{});
      store<T>(g + c, Vec<T>{});
    }
    // Key tiles read whole tiles of columns.
    for (int64_t c = larger_of(edge.high, span.low); c < round_up(span.high, kEdge<T>); c += kW) {
      store<T>(p + c, Vec<T>{});
      store<T>(g + c, Vec<T>{});
    }
    const T lse = of.lse[r], delta = of.delta[r];
    for (int64_t c = edge.low; c < edge.high; c += kW) {
      const Vec<T> x = power_of_two<T>(load<T>(p + c) * scale - lse);
      store<T>(p + c, x);
      store<T>(g + c, x * (load<T>(g + c) - delta));
    }
    if (s.empty()) continue;
    for (T* x : {p, g}) {
      if (s.low > edge.low) keep_lanes<T>(x + edge.low, s.low - edge.low, kW, T{0});
      if (s.high < edge.high) keep_lanes<T>(x + edge.high - kW, 0, s.high - edge.high + kW, T{0});
    }
  }
}

// The rows of a tile that see a key of each key tile.
inline void key_spans(const Span* keys, int64_t rows, int64_t columns, Span* spans) {
  int64_t low = 0, high = 0;
  for (int64_t k = 0; k < columns; k += kTall) {
    while (low < rows && keys[low].high <= k) ++low;
    while (high < rows && keys[high].low < smaller_of(k + kTall, columns)) ++high;
    spans[k / kTall] = {low, high};
  }
}

template <class T>
struct BackwardScratch {
  T *keys_t, *values_t, *keys, *dkeys, *dvalues, *query, *dout, *dquery, *scores, *grads;
  BackwardScratch(const Sizes<T>& s, T* scratch) {
    Bump<T> bump{scratch};
    keys_t = bump.take(s.keys * s.dim);
    values_t = bump.take(s.keys * s.dim);
    keys = bump.take(s.keys * s.broad);
    dkeys = bump.take(s.keys * s.padded);
    dvalues = bump.take(s.keys * s.padded);
    query = bump.take(kTileQueries * s.wide);
    dout = bump.take(kTileQueries * s.wide);
    dquery = bump.take(kTileQueries * s.padded);
    scores = bump.take(kTileQueries * s.line);
    grads = bump.take(kTileQueries * s.line);
  }
};

// Zeros follow up to a whole vector.
template <class T>
void copy_row(const T* from, int64_t dim, T* to) {
  for_vectors<T>(dim, [&](int64_t d, int64_t n) { store<T>(to + d, load_n<T>(from + d, n)); });
}

// The query rows of a task that the kernel reads and writes.
template <class T>
struct QuerySide {
  GroupRows<T, const T*> q, dout, out;
  GroupRows<T, T*> dq;
  QuerySide(const AttentionArgs<T>& args, const AttentionTask& task)
      : q(args.q.data, args.q.stride, args, task),
        dout(args.dout.data, args.dout.stride, args, task),
        out(args.done.data, args.done.stride, args, task),
        dq(args.dq.data, args.dq.stride, args, task) {}
};

// One tile of query rows with one block of keys [begin, end).
template <class T>
void backward_tile(const AttentionArgs<T>& args, const AttentionTask& task, const Sizes<T>& size, const Mask<T>& mask,
                   const QuerySide<T>& side, const BackwardScratch<T>& s, int64_t first, int64_t rows, Span block,
                   const Span* spans, bool fresh_block, int64_t turn) {
  constexpr int64_t kW = kWidth<T>;
  const int64_t dim = size.dim, columns = block.high - block.low;
  for (int64_t r = 0; r < rows; ++r) {
    copy_row<T>(side.q(first + r), dim, s.query + r * size.wide);
    copy_row<T>(side.dout(first + r), dim, s.dout + r * size.wide);
  }
  TileRows<T> of;
  for (int64_t part = 0; part < rows; part += kW) {
    const int64_t n = smaller_of(kW, rows - part);
    Vec<T> dots[kW];
    for (int64_t i = 0; i < kW; ++i) dots[i] = Vec<T>{};
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = first + part + i;
      const T *out = side.out(row), *dout = side.dout(row);
      for_vectors<T>(dim, [&](int64_t d, int64_t m) { dots[i] += load_n<T>(out + d, m) * load_n<T>(dout + d, m); });
      of.keys[part + i] = mask.in_block(row, block.low, block.high);
      of.lse[part + i] = per_row(args.dlse, task, mask.group, row) * kLog2e<T>;
    }
    alignas(64) T delta[kW];
    store<T>(delta, join_lanes<T>([&](int i) { return dots[i]; }, [](auto a, auto b) { return a + b; }));
    for (int64_t i = 0; i < n; ++i) of.delta[part + i] = delta[i];
  }
  score_product<T, false>(rows, columns, dim, s.query, size.wide, s.keys_t, s.scores, size.line, spans);
  score_product<T, false>(rows, columns, dim, s.dout, size.wide, s.values_t, s.grads, size.line, spans);
  softmax_backward_tile<T>(size, of, rows, spans, args.scale * kLog2e<T>, s.scores, s.grads);
  Span seers[kMostKeys / kTall];
  key_spans(of.keys, rows, columns, seers);
  span_product<T, true>(columns, size.padded, s.scores, size.line, s.dout, size.wide, kBroad<T>, s.dvalues, size.padded,
                        seers, !fresh_block);
  span_product<T, true>(columns, size.padded, s.grads, size.line, s.query, size.wide, kBroad<T>, s.dkeys, size.padded,
                        seers, !fresh_block);
  span_product<T, false>(rows, size.padded, s.grads, size.line, s.keys, kBroad<T>, size.keys * kBroad<T>, s.dquery,
                         size.padded, spans, false);
  const bool begins = block.low <= mask(first).low;
  if (task.before != nullptr && !begins) wait_until(task.before, turn + 1);
  for (int64_t r = 0; r < rows; ++r) {
    T* to = side.dq(first + r);
    const T* from = s.dquery + r * size.padded;
    if (begins) {
      for_vectors<T>(dim, [&](int64_t d, int64_t n) { store_n<T>(to + d, load<T>(from + d), n); });
    } else {
      for_vectors<T>(dim,
                     [&](int64_t d, int64_t n) { store_n<T>(to + d, load_n<T>(to + d, n) + load<T>(from + d), n); });
    }
  }
}

template <class T>
void write_block(Rows<T> to, const T* from, const AttentionTask& task, const Sizes<T>& size, Span block, T scale) {
  for (int64_t r = block.low; r < block.high; ++r, from += size.padded) {
    T* row = to.data + (task.k_begin + r) * to.stride + task.kv_head * size.dim;
    for_vectors<T>(size.dim, [&](int64_t d, int64_t n) {
      Vec<T> x = load<T>(from + d) * scale;
      if (task.adds) x += load_n<T>(row + d, n);
      store_n<T>(row + d, x, n);
    });
  }
}

// The block of keys that begins at task.first.
template <class T>
void attention_backward(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch) {
  const Sizes<T> size(args.head_dim);
  const Mask<T> mask(args, task);
  const BackwardScratch<T> s(size, scratch);
  const QuerySide<T> side(args, task);
  const int64_t dim = size.dim, count = task.q_rows * mask.group;
  const Span block{task.first, smaller_of(task.k_rows, task.first + size.keys)};
  const T* k = args.k.data + (task.k_begin + block.low) * args.k.stride + task.kv_head * dim;
  const T* v = args.v.data + (task.k_begin + block.low) * args.v.stride + task.kv_head * dim;
  const int64_t columns = block.high - block.low;
  pack_transposed<T, kBroad<T>>(
      columns, dim, [&](int64_t r) { return k + r * args.k.stride; }, s.keys_t);
  pack_transposed<T, kBroad<T>>(
      columns, dim, [&](int64_t r) { return v + r * args.v.stride; }, s.values_t);
  pack_rows<T>(
      columns, dim, [&](int64_t r) { return k + r * args.k.stride; }, args.scale, s.keys, size.keys * kBroad<T>);
  bool fresh = true;
  for (int64_t i = 0, turn = 0; i < count; i += kTileQueries, ++turn) {
    const int64_t rows = smaller_of(kTileQueries, count - i);
    Span spans[kTileQueries / kTall];
    if (tile_spans(mask, i, rows, block.low, block.high, spans) > 0) {
      backward_tile<T>(args, task, size, mask, side, s, i, rows, block, spans, fresh, turn);
      fresh = false;
      if (task.done != nullptr) __atomic_store_n(task.done, turn + 1, __ATOMIC_RELEASE);
    } else if (block.low == 0 && mask(i).low >= mask(i + rows - 1).high) {  // no row sees any key
      for (int64_t r = 0; r < rows; ++r) {
        for_vectors<T>(dim, [&](int64_t d, int64_t n) { store_n<T>(side.dq(i + r) + d, Vec<T>{}, n); });
      }
    }
  }
  if (fresh) {
    fill<T>(s.dkeys, columns * size.padded, T{0});
    fill<T>(s.dvalues, columns * size.padded, T{0});
  }
  write_block<T>(args.dk, s.dkeys, task, size, block, args.scale);
  write_block<T>(args.dv, s.dvalues, task, size, block, T{1});
  if (task.done != nullptr) __atomic_store_n(task.done, kAllTurns, __ATOMIC_RELEASE);
}

}  // namespace
}  // namespace loom::kernels
