#pragma once
// A small matrix product for operands that fit a cache: C [m, n] (+)= A [m, k] B [k, n]. One accumulator per element of
// C and a loop over k in order, so a row of C does not depend on how many rows are computed beside it.
#include "core/nn/kernels/simd.h"

namespace loom::kernels {
namespace {

// Columns of B are laid out in panels of kPanel<T>: panel p begins at data + p * step, its rows are `stride` apart. A
// row-major B is the case step = kPanel<T>.
template <class T>
constexpr int kPanel = 2 * kWidth<T>;

template <class T>
struct Panels {
  const T* data = nullptr;
  int64_t stride = 0;
  int64_t step = 0;
};

template <class T, int M, int N, bool kTransposed>
inline void tile(int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  constexpr int kW = kWidth<T>;
  Vec<T> sum[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sum[m][n] = accumulate ? load<T>(c + m * ldc + n * kW) : Vec<T>{};
  }
  for (int64_t i = 0; i < k; ++i) {
    Vec<T> row[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) row[n] = load<T>(b + i * ldb + n * kW);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const Vec<T> x = broadcast<T>(kTransposed ? a[i * lda + m] : a[m * lda + i]);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sum[m][n] += x * row[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store<T>(c + m * ldc + n * kW, sum[m][n]);
  }
}

template <class T, int M, bool kTransposed>
inline void column(int vectors, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc,
                   bool accumulate) {
  if (vectors == 2) {
    tile<T, M, 2, kTransposed>(k, a, lda, b, ldb, c, ldc, accumulate);
  } else {
    tile<T, M, 1, kTransposed>(k, a, lda, b, ldb, c, ldc, accumulate);
  }
}

// A(m, k) is a[m * lda + k], or a[k * lda + m] when transposed. n is a multiple of kWidth<T>.
template <class T, bool kTransposed>
inline void gemm(int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, Panels<T> b, T* c, int64_t ldc,
                 bool accumulate) {
  constexpr int kW = kWidth<T>;
  const int64_t a_step = kTransposed ? 1 : lda;
  for (int64_t j = 0; j < n; j += kPanel<T>) {
    const T* panel = b.data + (j / kPanel<T>)*b.step;
    const int vectors = j + kW < n ? 2 : 1;
    int64_t i = 0;
    for (; i + kTileRows <= m; i += kTileRows) {
      column<T, kTileRows, kTransposed>(vectors, k, a + i * a_step, lda, panel, b.stride, c + i * ldc + j, ldc,
                                        accumulate);
    }
    if constexpr (kTileRows > 4) {
      if (i + 4 <= m) {
        column<T, 4, kTransposed>(vectors, k, a + i * a_step, lda, panel, b.stride, c + i * ldc + j, ldc, accumulate);
        i += 4;
      }
    }
    if (i + 2 <= m) {
      column<T, 2, kTransposed>(vectors, k, a + i * a_step, lda, panel, b.stride, c + i * ldc + j, ldc, accumulate);
      i += 2;
    }
    if (i < m) {
      column<T, 1, kTransposed>(vectors, k, a + i * a_step, lda, panel, b.stride, c + i * ldc + j, ldc, accumulate);
    }
  }
}

}  // namespace
}  // namespace loom::kernels
