#pragma once
// What attention is made of: products of operands packed for caches, restricted to what a mask lets through, and powers
// of two. Rows of an operand lie in panels, k after k, so that the innermost loop reads forward; every element of a
// product has one accumulator and a loop over k in order, so that a row does not depend on the rows beside it.
#include "core/nn/kernels/simd.h"

namespace loom::kernels {
namespace {

template <class T>
constexpr int kBroad = 2 * kWidth<T>;  // columns of a panel on the right side of a product
#if defined(__AVX512F__)
constexpr int kTall = 8;  // rows of a micro tile: kTall x kBroad sums stay in registers
#else
constexpr int kTall = 4;
#endif
template <class T>
constexpr int kHigh = kTall > kWidth<T> ? kTall : kWidth<T>;  // rows of a panel on the left side
template <class T>
constexpr int kEdge = kHigh<T>;  // what a row tile computes begins at a multiple of it

constexpr int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

struct Span {
  int64_t low = 0, high = 0;
  bool empty() const { return high <= low; }
};

template <class T>
void fill(T* x, int64_t n, T value) {
  for (int64_t i = 0; i < n; ++i) x[i] = value;
}

// One micro tile: C [M, N vectors] (+)= A B. A(m, i) is a[i * step + m * row]: packed and transposed operands have row
// = 1, rows that lie as they are have step = 1.
template <class T, int M, int N, bool kDense>
inline void micro(int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  constexpr int kW = kWidth<T>;
  Vec<T> sum[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sum[m][n] = Vec<T>{};
  }
  for (int64_t i = 0; i < k; ++i) {
    Vec<T> row[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) row[n] = load<T>(b + i * ldb + n * kW);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const Vec<T> x = broadcast<T>(kDense ? a[i * lda + m] : a[m * lda + i]);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sum[m][n] += x * row[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      T* to = c + m * ldc + n * kW;
      store<T>(to, accumulate ? load<T>(to) + sum[m][n] : sum[m][n]);
    }
  }
}

template <class T, int N, bool kDense, int M = kTall>
inline void micro_rows(int64_t rows, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc,
                       bool accumulate) {
  if (rows >= M) {
    micro<T, M, N, kDense>(k, a, lda, b, ldb, c, ldc, accumulate);
  } else if constexpr (M > 1) {
    micro_rows<T, N, kDense, M - 1>(rows, k, a, lda, b, ldb, c, ldc, accumulate);
  }
}

// C [rows, columns of the tile's span] = A B. A in panels of kHigh rows when kDense, else in rows that lie lda apart; B
// in panels [k, kBroad]; spans[i] are the columns that row tile i needs; whole vectors are written.
template <class T, bool kDense>
inline void score_product(int64_t rows, int64_t columns, int64_t k, const T* a, int64_t lda, const T* b, T* c,
                          int64_t ldc, const Span* spans) {
  constexpr int kW = kWidth<T>;
  for (int64_t j = 0; j < columns; j += kBroad<T>, b += k * kBroad<T>) {
    for (int64_t i = 0; i < rows; i += kTall) {
      const Span span = spans[i / kTall];
      const bool left = span.low < j + kW && span.high > j, right = span.low < j + 2 * kW && span.high > j + kW;
      const T* tile = kDense ? a + i / kHigh<T> * kHigh<T> * k + i % kHigh<T> : a + i * lda;
      if (left && right) {
        micro_rows<T, 2, kDense>(rows - i, k, tile, lda, b, kBroad<T>, c + i * ldc + j, ldc, false);
      } else if (left || right) {
        const int64_t shift = left ? 0 : kW;
        micro_rows<T, 1, kDense>(rows - i, k, tile, lda, b + shift, kBroad<T>, c + i * ldc + j + shift, ldc, false);
      }
    }
  }
}

// C [rows, columns] (+)= A B over the k of spans[i]. Rows of B lie ldb apart, its panels of kBroad columns `step`. A
// row tile starts at a + i * lda, or, when kDense, at a + i with lda between its k.
template <class T, bool kDense>
inline void span_product(int64_t rows, int64_t columns, const T* a, int64_t lda, const T* b, int64_t ldb, int64_t step,
                         T* c, int64_t ldc, const Span* spans, bool accumulate) {
  constexpr int kW = kWidth<T>;
  for (int64_t j = 0; j < columns; j += kBroad<T>, b += step) {
    for (int64_t i = 0; i < rows; i += kTall) {
      const Span span = spans[i / kTall];
      const int64_t k = span.empty() ? 0 : span.high - span.low;
      if (k == 0 && accumulate) continue;
      const T* tile = kDense ? a + i + span.low * lda : a + i * lda + span.low;
      if (columns - j > kW) {
        micro_rows<T, 2, kDense>(rows - i, k, tile, lda, b + span.low * ldb, ldb, c + i * ldc + j, ldc, accumulate);
      } else {
        micro_rows<T, 1, kDense>(rows - i, k, tile, lda, b + span.low * ldb, ldb, c + i * ldc + j, ldc, accumulate);
      }
    }
  }
}

// Rows of a matrix, kP of them into one panel [dim, kP]; row r begins at row(r). What is missing in the last panel is
// zero.
template <class T, int kP, class Row>
inline void pack_transposed(int64_t rows, int64_t dim, const Row& row, T* out) {
  constexpr int kW = kWidth<T>;
  for (int64_t r = 0; r < rows; r += kP, out += dim * kP) {
    for (int64_t part = 0; part < kP; part += kW) {
      const int64_t n = larger_of(0, smaller_of(kW, rows - r - part));
      const T* in[kW] = {};
      for (int64_t i = 0; i < n; ++i) in[i] = row(r + part + i);
      T* to = out + part;
      int64_t d = 0;
      if (n == kW) {
        for (; d + kW <= dim; d += kW) {
          turn_square<T>([&](int i) { return load<T>(in[i] + d); }, to + d * kP, kP);
        }
      } else if (n > 0) {
        for (; d + kW <= dim; d += kW) {
          turn_square<T>([&](int i) { return i < n ? load<T>(in[i] + d) : Vec<T>{}; }, to + d * kP, kP);
        }
      }
      for (; d < dim; ++d) {
        for (int64_t i = 0; i < n; ++i) to[d * kP + i] = in[i][d];
        for (int64_t i = n; i < kW; ++i) to[d * kP + i] = T{0};
      }
    }
  }
}

// Rows of a matrix, times factor, into panels [rows, kBroad] of their columns that lie `step` apart; columns beyond dim
// are zero.
template <class T, class Row>
inline void pack_rows(int64_t rows, int64_t dim, const Row& row, T factor, T* out, int64_t step) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = row(r);
    for_vectors<T>(dim, [&](int64_t d, int64_t n) {
      store<T>(out + d / kBroad<T> * step + r * kBroad<T> + d % kBroad<T>, load_n<T>(in + d, n) * factor);
    });
  }
}

// The largest lane, or the sum of lanes, of kWidth vectors at once: vector i, which is row(i), gives lane i.
template <class T, class Row, class Join>
inline Vec<T> join_lanes(const Row& row, const Join& join) {
  constexpr int kW = kWidth<T>;
  alignas(64) T turned[kW * kW];
  turn_square<T>(row, turned, kW);
  Vec<T> all = load<T>(turned);
  for (int i = 1; i < kW; ++i) all = join(all, load<T>(turned + i * kW));
  return all;
}

// Lanes [low, high) of the vector at p stay, the others become `other`.
template <class T>
inline void keep_lanes(T* p, int64_t low, int64_t high, T other) {
  Vec<T> lane;
#pragma GCC unroll 16
  for (int i = 0; i < kWidth<T>; ++i) lane[i] = static_cast<T>(i);
  Vec<T> x = load<T>(p);
  x = lane < broadcast<T>(static_cast<T>(low)) ? broadcast<T>(other) : x;
  store<T>(p, lane < broadcast<T>(static_cast<T>(high)) ? x : broadcast<T>(other));
}

// 2^x by a polynomial (Remez, relative error 2e-9 in float, 3e-18 in double) for |x| <= 1/2 and the exponent's bits:
// exactly 1 at 0, 0 below the smallest normal number. x is not above the largest exponent.
template <class T>
struct PowerOfTwo;

template <>
struct PowerOfTwo<float> {
  static constexpr float kLow = -126.0F;
  static constexpr float kTerms[] = {1.0F,           0.693147206F,   0.240226469F,   0.0555032878F,
                                     0.00961848896F, 0.00133999312F, 0.000153458120F};
};

template <>
struct PowerOfTwo<double> {
  static constexpr double kLow = -1022.0;
  static constexpr double kTerms[] = {1.0,
                                      6.9314718055994533046e-01,
                                      2.4022650695910157335e-01,
                                      5.5504108664819932050e-02,
                                      9.6181291075880083940e-03,
                                      1.3333558146788015342e-03,
                                      1.5403530462868207794e-04,
                                      1.5252733491156990880e-05,
                                      1.3215432930678194502e-06,
                                      1.0178197718557985032e-07,
                                      7.0741307562671221e-09,
                                      4.4353072250326898907e-10};
};

template <class T>
inline Vec<T> power_of_two(const Vec<T>& x) {
  using P = PowerOfTwo<T>;
  using I = typename Simd<T>::I;
  constexpr int kLast = static_cast<int>(sizeof(P::kTerms) / sizeof(T)) - 1;
  const Vec<T> shifted = x + Simd<T>::kMagic;
  const Vec<T> r = x - (shifted - Simd<T>::kMagic);
  Vec<T> p = broadcast<T>(P::kTerms[kLast]);
#pragma GCC unroll 16
  for (int i = kLast - 1; i >= 0; --i) p = p * r + P::kTerms[i];
  I bits, exponent;
  __builtin_memcpy(&bits, &p, sizeof(bits));
  __builtin_memcpy(&exponent, &shifted, sizeof(exponent));
  bits += exponent << Simd<T>::kExponentShift;
  __builtin_memcpy(&p, &bits, sizeof(p));
  return x < broadcast<T>(P::kLow) ? Vec<T>{} : p;
}

}  // namespace
}  // namespace loom::kernels
