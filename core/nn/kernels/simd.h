#pragma once
// The vectors of one instruction set, by the compiler's own vector types: operators do what they say and nothing is
// hidden in intrinsics. Included only by the kernel files, hence the unnamed namespace: each gets code of its own.
#include <cstdint>
#include <utility>

namespace loom::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

template <class T>
struct Simd;

template <>
struct Simd<float> {
  typedef float V __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t I __attribute__((vector_size(kVectorBytes)));
  static constexpr int kWidth = kVectorBytes / 4;
  static constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr int kExponentShift = 23;
  static constexpr float kExpLow = -87.0F, kExpHigh = 88.0F;
  static constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  static constexpr int kTerms = 7;
};

template <>
struct Simd<double> {
  typedef double V __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t I __attribute__((vector_size(kVectorBytes)));
  static constexpr int kWidth = kVectorBytes / 8;
  static constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int kExponentShift = 52;
  static constexpr double kExpLow = -708.0, kExpHigh = 709.0;
  static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  static constexpr int kTerms = 13;
};

template <class T>
using Vec = typename Simd<T>::V;

template <class T>
constexpr int kWidth = Simd<T>::kWidth;

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

template <class T>
inline void store(T* p, const Vec<T>& v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

// The first n < kWidth elements; the others are zero.
template <class T>
inline Vec<T> load_part(const T* p, int64_t n) {
  T a[kWidth<T>] = {};
  for (int64_t i = 0; i < n; ++i) a[i] = p[i];
  return load<T>(a);
}

template <class T>
inline void store_part(T* p, const Vec<T>& v, int64_t n) {
  T a[kWidth<T>];
  store<T>(a, v);
  for (int64_t i = 0; i < n; ++i) p[i] = a[i];
}

// Calls f(index, count) for whole vectors and once for the rest. The rest goes through the same vector code, so that an
// element's value does not depend on where in the row it stands.
template <class T, class F>
inline void for_vectors(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) f(i, static_cast<int64_t>(kWidth<T>));
  if (i < n) f(i, n - i);
}

template <class T>
inline Vec<T> load_n(const T* p, int64_t n) {
  return n == kWidth<T> ? load<T>(p) : load_part<T>(p, n);
}

template <class T>
inline void store_n(T* p, const Vec<T>& v, int64_t n) {
  if (n == kWidth<T>) {
    store<T>(p, v);
  } else {
    store_part<T>(p, v, n);
  }
}

template <class T>
inline Vec<T> broadcast(T x) {
  return x - Vec<T>{};
}

template <class T>
inline Vec<T> larger(const Vec<T>& a, const Vec<T>& b) {
  return a > b ? a : b;
}

template <class T>
inline T sum_lanes(const Vec<T>& v) {
  T a[kWidth<T>];
  store<T>(a, v);
  for (int w = kWidth<T> / 2; w > 0; w /= 2) {
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  }
  return a[0];
}

template <class T>
inline T largest_lane(const Vec<T>& v) {
  T a[kWidth<T>];
  store<T>(a, v);
  for (int w = kWidth<T> / 2; w > 0; w /= 2) {
    for (int i = 0; i < w; ++i) a[i] = a[i] > a[i + w] ? a[i] : a[i + w];
  }
  return a[0];
}

// Every second element of the result comes from a, the others from b; `kOffset` = 0 takes the lower halves, kWidth / 2
// the upper.
template <class T, int kOffset, std::size_t... kIndex>
inline Vec<T> interleave(const Vec<T>& a, const Vec<T>& b, std::index_sequence<kIndex...> /*lanes*/) {
  return __builtin_shufflevector(a, b, (kOffset + kIndex / 2 + (kIndex % 2) * kWidth<T>)...);
}

// kWidth vectors, number i being row(i), to kWidth rows `out_stride` apart that hold their lanes: log2(kWidth) rounds
// of interleaving.
template <class T, class Row>
inline void turn_square(const Row& row, T* out, int64_t out_stride) {
  constexpr int kW = kWidth<T>;
  using Lanes = std::make_index_sequence<kW>;
  Vec<T> a[kW], b[kW];
#pragma GCC unroll 16
  for (int i = 0; i < kW; ++i) a[i] = row(i);
#pragma GCC unroll 4
  for (int round = 1; round < kW; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kW / 2; ++i) {
      b[2 * i] = interleave<T, 0>(a[i], a[i + kW / 2], Lanes{});
      b[2 * i + 1] = interleave<T, kW / 2>(a[i], a[i + kW / 2], Lanes{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kW; ++i) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kW; ++i) store<T>(out + i * out_stride, a[i]);
}

// The same of a square of kWidth rows, `stride` apart.
template <class T>
inline void transpose_square(const T* x, int64_t stride, T* out, int64_t out_stride) {
  turn_square<T>([&](int i) { return load<T>(x + i * stride); }, out, out_stride);
}

// exp(x) to about one unit in the last place: x = n ln 2 + r, a Taylor polynomial in r, n added to the exponent bits.
// Below kExpLow the result is 0 (so exp(-inf) is), above kExpHigh it stays finite.
template <class T>
inline Vec<T> exponential(const Vec<T>& argument) {
  using S = Simd<T>;
  using I = typename S::I;
  const Vec<T> high = broadcast<T>(S::kExpHigh), low = broadcast<T>(S::kExpLow);
  Vec<T> x = argument > high ? high : argument;
  x = x < low ? low : x;
  const Vec<T> shifted = x * static_cast<T>(1.44269504088896340736) + S::kMagic;
  const Vec<T> n = shifted - S::kMagic;
  const Vec<T> r = x - n * S::kLn2High - n * S::kLn2Low;
  constexpr double kInverse[] = {
      1.0,        1.0,         0.5,          1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
      1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  Vec<T> p = broadcast<T>(static_cast<T>(kInverse[S::kTerms]));
#pragma GCC unroll 16
  for (int i = S::kTerms - 1; i >= 0; --i) p = p * r + static_cast<T>(kInverse[i]);
  I bits, exponent;
  __builtin_memcpy(&bits, &p, sizeof(bits));
  __builtin_memcpy(&exponent, &shifted, sizeof(exponent));
  // The magic number's own bits leave at the top.
  bits += exponent << S::kExponentShift;
  __builtin_memcpy(&p, &bits, sizeof(p));
  return argument < low ? Vec<T>{} : p;
}

}  // namespace
}  // namespace loom::kernels
