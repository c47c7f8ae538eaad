#pragma once
// The product of large matrices, for one tile of the result and one thread: slices of k in order; within a slice,
// blocks of A that fit the second-level cache and panels of B are packed so that the innermost loop reads memory in
// the order in which it lies (the scheme of Goto and of BLIS). An element of the result is
// start + (sum of slice 0) + (sum of slice 1) + ..., each sum taken in order: fixed by k alone.
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/kernels/simd.h"

namespace loom::kernels {
namespace {

// The registers hold kMatmulRows x 2 vectors of sums. Depth: a panel of A is in the first cache or close to it, and
// kBlockRows of them are about a third of the second.
#if defined(__AVX512F__)
constexpr int kMatmulRows = 12, kDepthBytes = 2048, kBlockRows = 192;
#elif defined(__AVX2__)
constexpr int kMatmulRows = 6, kDepthBytes = 1024, kBlockRows = 96;
#else
constexpr int kMatmulRows = 6, kDepthBytes = 1024, kBlockRows = 96;
#endif
constexpr int kMatmulVectors = 2;
constexpr int kGroupPanels = 4;  // panels of B packed at once: few rows of B share a page

template <class T>
constexpr int kMatmulColumns = kMatmulVectors* kWidth<T>;

// The k of a slice: equal slices, whole cache lines.
template <class T>
int64_t slice_depth(int64_t k) {
  constexpr int64_t kMost = kDepthBytes / static_cast<int64_t>(sizeof(T));
  const int64_t slices = (k + kMost - 1) / kMost;
  return slices == 0 ? 0 : round_up((k + slices - 1) / slices, 16);
}

template <class T>
int64_t matmul_scratch(int64_t m, int64_t n, int64_t k) {
  const int64_t rows = round_up(m < kBlockRows ? m : kBlockRows, kMatmulRows), columns = round_up(n, kMatmulColumns<T>);
  return (rows + columns) * slice_depth<T>(k) + 2 * kWidth<T>;
}

// One row of a panel of `kLanes`. The last vector may reach into the next row, which is written later; `last` = there
// is none in this panel.
template <class T, int kLanes>
inline void pack_row(const T* x, T* out, bool last) {
  constexpr int kW = kWidth<T>, kWhole = kLanes / kW * kW;
  for (int c = 0; c < kWhole; c += kW) store<T>(out + c, load<T>(x + c));
  if constexpr (kWhole < kLanes) {
    if (last) {
      for (int c = kWhole; c < kLanes; ++c) out[c] = x[c];
    } else {
      store<T>(out + kWhole, load<T>(x + kWhole));
    }
  }
}

// Any strides; lanes [first, kLanes) of rows [begin, end), zero where there is nothing.
template <class T, int kLanes>
void pack_elements(const T* x, int64_t lane_step, int64_t k_step, int64_t first, int64_t lanes, int64_t begin,
                   int64_t end, T* out) {
  for (int64_t i = begin; i < end; ++i) {
    const T* in = x + i * k_step;
    T* row = out + i * kLanes;
    for (int64_t c = first; c < lanes; ++c) row[c] = in[c * lane_step];
    for (int64_t c = lanes > first ? lanes : first; c < kLanes; ++c) row[c] = T{0};
  }
}

// Lanes lie side by side in memory: eight rows of every panel at a time, so that memory is read along its rows.
// `readable` lanes exist.
template <class T, int kLanes>
void pack_along(const T* x, int64_t k_step, int64_t lanes, int64_t readable, int64_t depth, T* out) {
  constexpr int64_t kReach = round_up(kLanes, kWidth<T>);
  for (int64_t i = 0; i < depth; i += 8) {
    const int64_t end = i + 8 < depth ? i + 8 : depth;
    for (int64_t c = 0; c < lanes; c += kLanes) {
      T* panel = out + c * depth;
      if (c + kReach <= readable) {
        for (int64_t r = i; r < end; ++r) pack_row<T, kLanes>(x + r * k_step + c, panel + r * kLanes, r + 1 == depth);
      } else {
        pack_elements<T, kLanes>(x + c, 1, k_step, 0, lanes - c < kLanes ? lanes - c : kLanes, i, end, panel);
      }
    }
  }
}

// k lies side by side in memory: squares are transposed in registers.
template <class T, int kLanes>
void pack_across(const T* x, int64_t lane_step, int64_t lanes, int64_t readable, int64_t depth, T* out) {
  constexpr int64_t kW = kWidth<T>, kReach = round_up(kLanes, kW);
  constexpr bool kDirect = kLanes <= kW || kLanes % kW == 0;
  for (int64_t c = 0; c < lanes; c += kLanes, x += kLanes * lane_step, out += kLanes * depth) {
    const int64_t here = lanes - c < kLanes ? lanes - c : kLanes;
    // Squares may read lanes of the next panel, if there are any.
    const int64_t squares = (readable - c < kReach ? readable - c : kReach) / kW;
    int64_t i = 0;
    if (kDirect || squares * kW >= kLanes) {
      // The last square of rows is left to the elements when it would reach over the panel's end.
      for (; i + kW <= depth - (kLanes % kW == 0 ? 0 : 1); i += kW) {
        if constexpr (kDirect) {
          for (int64_t s = 0; s < squares; ++s) {
            transpose_square<T>(x + s * kW * lane_step + i, lane_step, out + i * kLanes + s * kW, kLanes);
          }
        } else {
          T square[kW * kReach];
          for (int64_t s = 0; s < squares; ++s) {
            transpose_square<T>(x + s * kW * lane_step + i, lane_step, square + s * kW, kReach);
          }
          for (int64_t r = 0; r < kW; ++r) pack_row<T, kLanes>(square + r * kReach, out + (i + r) * kLanes, false);
        }
      }
      if (squares * kW < kLanes) pack_elements<T, kLanes>(x, lane_step, 1, squares * kW, here, 0, i, out);
    }
    pack_elements<T, kLanes>(x, lane_step, 1, 0, here, i, depth, out);
  }
}

// Panels of kLanes lanes: element (i, lane) at out[panel * depth * kLanes + i * kLanes + lane].
template <class T, int kLanes>
void pack(const T* x, int64_t lane_step, int64_t k_step, int64_t lanes, int64_t readable, int64_t depth, T* out) {
  if (lane_step == 1) {
    pack_along<T, kLanes>(x, k_step, lanes, readable, depth, out);
  } else if (k_step == 1) {
    pack_across<T, kLanes>(x, lane_step, lanes, readable, depth, out);
  } else {
    for (int64_t c = 0; c < lanes; c += kLanes) {
      pack_elements<T, kLanes>(x + c * lane_step, lane_step, k_step, 0, lanes - c < kLanes ? lanes - c : kLanes, 0,
                               depth, out + c * depth);
    }
  }
}

// Where the sums of one register tile go: out = start + sum; start null = 0.
template <class T>
struct Corner {
  T* out = nullptr;
  int64_t stride = 0;
  const T* start = nullptr;
  int64_t start_stride = 0;
  int64_t rows = 0, columns = 0;
};

// A tile that reaches over the edge of the result.
template <class T>
void write_part(const T* sums, int64_t sums_stride, const Corner<T>& c) {
  for (int64_t m = 0; m < c.rows; ++m) {
    for (int64_t n = 0; n < c.columns; ++n) {
      const T sum = sums[m * sums_stride + n];
      c.out[m * c.stride + n] = c.start == nullptr ? sum : c.start[m * c.start_stride + n] + sum;
    }
  }
}

template <class T, int M, int N>
inline void register_tile(int64_t depth, const T* a, const T* b, int64_t b_stride, const Corner<T>& c) {
  constexpr int kW = kWidth<T>;
  Vec<T> sum[M][N] = {};
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    if (m < c.rows) __builtin_prefetch(c.out + m * c.stride, 1);
  }
  for (int64_t i = 0; i < depth; ++i, a += kMatmulRows, b += b_stride) {
    Vec<T> row[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) row[n] = load<T>(b + n * kW);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Vec<T> x = broadcast<T>(a[m]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[m][n] += x * row[n];
    }
  }
  if (c.rows < M || c.columns < N * kW) {
    T sums[M * N * kW];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) store<T>(sums + (m * N + n) * kW, sum[m][n]);
    }
    return write_part<T>(sums, N * kW, c);
  }
  if (c.start == nullptr) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) store<T>(c.out + m * c.stride + n * kW, sum[m][n]);
    }
    return;
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      store<T>(c.out + m * c.stride + n * kW, load<T>(c.start + m * c.start_stride + n * kW) + sum[m][n]);
    }
  }
}

template <class T, int M>
inline void register_tile_rows(int64_t depth, const T* a, const T* b, int64_t b_stride, const Corner<T>& c) {
  if (c.columns > kWidth<T>) {
    register_tile<T, M, 2>(depth, a, b, b_stride, c);
  } else {
    register_tile<T, M, 1>(depth, a, b, b_stride, c);
  }
}

// A packed block of A times one panel of B.
template <class T>
void panel_product(int64_t depth, const T* a, const T* b, int64_t b_stride, Corner<T> c, int64_t rows) {
  for (int64_t i = 0; i < rows; i += kMatmulRows, a += kMatmulRows * depth) {
    c.rows = rows - i < kMatmulRows ? rows - i : kMatmulRows;
    if (c.rows == kMatmulRows) {
      register_tile_rows<T, kMatmulRows>(depth, a, b, b_stride, c);
    } else if (kMatmulRows > 8 && c.rows > 8) {
      register_tile_rows<T, kMatmulRows>(depth, a, b, b_stride, c);
    } else if (kMatmulRows > 8 && c.rows > 4) {
      register_tile_rows<T, 8>(depth, a, b, b_stride, c);
    } else if (c.rows > 4) {
      register_tile_rows<T, kMatmulRows>(depth, a, b, b_stride, c);
    } else if (c.rows > 2) {
      register_tile_rows<T, 4>(depth, a, b, b_stride, c);
    } else if (c.rows == 2) {
      register_tile_rows<T, 2>(depth, a, b, b_stride, c);
    } else {
      register_tile_rows<T, 1>(depth, a, b, b_stride, c);
    }
    c.out += kMatmulRows * c.stride;
    if (c.start != nullptr) c.start += kMatmulRows * c.start_stride;
  }
}

template <class T>
void matmul_without_k(const MatmulArgs<T>& x) {
  for (int64_t i = 0; i < x.m; ++i) {
    for (int64_t j = 0; j < x.n; ++j) {
      x.out.data[i * x.out.stride + j] = x.start.data == nullptr ? T{0} : x.start.data[i * x.start.stride + j];
    }
  }
}

template <class T>
void matmul(const MatmulArgs<T>& x, T* scratch) {
  constexpr int64_t kColumns = kMatmulColumns<T>, kGroup = kGroupPanels * kColumns;
  if (x.k == 0) return matmul_without_k(x);
  const int64_t slice = slice_depth<T>(x.k);
  T* b_packed = scratch;
  T* a_packed = scratch + round_up(x.n, kColumns) * slice;
  Corner<T> corner;
  corner.stride = x.out.stride;
  for (int64_t p = 0; p < x.k; p += slice) {
    const int64_t depth = x.k - p < slice ? x.k - p : slice;
    const Rows<const T> start = p == 0 ? x.start : Rows<const T>{x.out.data, x.out.stride};
    corner.start_stride = start.stride;
    for (int64_t i = 0; i < x.m; i += kBlockRows) {
      const int64_t rows = x.m - i < kBlockRows ? x.m - i : kBlockRows;
      pack<T, kMatmulRows>(x.a.data + i * x.a.row_step + p * x.a.column_step, x.a.row_step, x.a.column_step, rows,
                           x.m - i, depth, a_packed);
      for (int64_t group = 0; group < x.n; group += kGroup) {
        const int64_t end = group + kGroup < x.n ? group + kGroup : x.n;
        const T* b = x.b.data + p * x.b.row_step + group * x.b.column_step;
        // Of few rows, B is used once: as it is, if it lies right.
        const bool as_it_is = x.m <= kMatmulRows && x.b.column_step == 1 && (end - group) % kColumns == 0;
        if (i == 0 && !as_it_is) {
          pack<T, kColumns>(b, x.b.column_step, x.b.row_step, end - group, x.n - group, depth,
                            b_packed + group * depth);
        }
        for (int64_t j = group; j < end; j += kColumns) {
          corner.columns = x.n - j < kColumns ? x.n - j : kColumns;
          corner.out = x.out.data + i * x.out.stride + j;
          corner.start = start.data == nullptr ? nullptr : start.data + i * start.stride + j;
          if (as_it_is) {
            panel_product<T>(depth, a_packed, b + (j - group), x.b.row_step, corner, rows);
          } else {
            panel_product<T>(depth, a_packed, b_packed + j * depth, kColumns, corner, rows);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace loom::kernels
