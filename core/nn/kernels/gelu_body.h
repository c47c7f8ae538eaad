#pragma once
// GELU, exact and by tanh. Like that of SwiGLU its backward can make the value again, from what it reads anyway. The
// normal distribution function comes from erfc(z) = exp(-z^2) P(q) / (z + k) with q = (z - k) /
// (z + k): one polynomial for all z, so the lanes of a vector never part.
#include "core/nn/kernels/rows_body.h"

namespace loom::kernels {
namespace {

// P, by interpolation at Chebyshev's points in 60 digits: relative error 3e-9 for z < 10 and 6e-18 for z < 27, beyond
// which exp(-z^2) is zero.
template <class T>
struct ErfcTerms;

template <>
struct ErfcTerms<float> {
  static constexpr float kShift = 2.5F;
  static constexpr uint32_t kUpperHalf = 0xFFFFF000U;  // of the significand
  static constexpr int kTerms = 11;
  static constexpr float kTerm[kTerms] = {1.054031819F,     -0.8046518169F,  0.4539142059F,    -0.1712522123F,
                                          0.02835970484F,   0.008402362141F, -0.004803590472F, -0.000468332485F,
                                          0.0006484337394F, 8.21696395e-5F,  -3.840563827e-5F};
};

template <>
struct ErfcTerms<double> {
  static constexpr double kShift = 4.0;
  static constexpr uint64_t kUpperHalf = 0xFFFFFFFFF8000000U;
  static constexpr int kTerms = 23;
  static constexpr double kTerm[kTerms] = {
      1.095995661000491118,     -0.9765487290808821126,     0.7732087022652376445,     -0.5408538313132214545,
      0.3308515878779771475,    -0.1740109372404037906,     0.07638151491013245967,    -0.02637005333281383629,
      0.006112055646249431311,  -0.0002809589325332723625,  -0.0004550526248397844451, 0.0001768131831928993774,
      -3.63538260141716966e-6,  -0.00001886214490154280545, 4.694837292458508e-6,      1.426955551479064438e-6,
      -8.466110755516160761e-7, -7.925548689633914419e-8,   1.242015356031438938e-7,   3.672436793466470714e-9,
      -1.524032739771574794e-8, -7.618640755130118191e-10,  8.69002484739846465e-10};
};

template <class T>
inline Vec<T> magnitude(const Vec<T>& x) {
  return x < T{0} ? -x : x;
}

template <class T>
struct Gate {
  Vec<T> factor;  // gelu(x) = x * factor
  Vec<T> slope;   // the factor's derivative
};

// Phi(x) and phi(x).
template <class T>
inline Gate<T> exact_gate(const Vec<T>& x) {
  using E = ErfcTerms<T>;
  const Vec<T> z = magnitude<T>(x) * static_cast<T>(0.70710678118654752440);
  // exp(-x^2 / 2): what x * x loses by rounding is put back, for the relative error far out.
  const Vec<T> high = broadcast<T>(T{40});
  const Vec<T> near = z < high ? x : Vec<T>{};
  typename Simd<T>::I bits;
  __builtin_memcpy(&bits, &near, sizeof(bits));
  bits &= E::kUpperHalf;
  Vec<T> upper;
  __builtin_memcpy(&upper, &bits, sizeof(upper));
  const Vec<T> lower = near - upper;
  const Vec<T> square = near * near;
  const Vec<T> lost = (upper * upper - square) + T{2} * upper * lower + lower * lower;
  Vec<T> bell = exponential<T>(square * static_cast<T>(-0.5)) * (T{1} - static_cast<T>(0.5) * lost);
  bell = z < high ? bell : Vec<T>{};
  const Vec<T> t = T{1} / (z + E::kShift), q = T{1} - (T{2} * E::kShift) * t;
  Vec<T> p = broadcast<T>(E::kTerm[E::kTerms - 1]);
#pragma GCC unroll 24
  for (int i = E::kTerms - 2; i >= 0; --i) p = p * q + E::kTerm[i];
  const Vec<T> tail = static_cast<T>(0.5) * bell * p * t;
  return {x < T{0} ? tail : T{1} - tail, bell * static_cast<T>(0.39894228040143267794)};
}

// s(2u) and its derivative, u = sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh(u)) / 2 = s(2u).
template <class T>
inline Gate<T> tanh_gate(const Vec<T>& argument) {
  constexpr T kTwoRoot = static_cast<T>(1.59576912160573071176), kCubic = static_cast<T>(0.044715);
  const Vec<T> high = broadcast<T>(T{40}), low = broadcast<T>(T{-40});
  Vec<T> x = argument > high ? high : argument;
  x = x < low ? low : x;
  const Vec<T> square = x * x, twice = kTwoRoot * x * (T{1} + kCubic * square);
  const Vec<T> e = exponential<T>(-magnitude<T>(twice)), inverse = T{1} / (T{1} + e);
  const Vec<T> other = e * inverse;  // s(-|2u|)
  return {twice < T{0} ? other : inverse, inverse * other * kTwoRoot * (T{1} + T{3} * kCubic * square)};
}

template <class T>
inline Gate<T> gelu_gate(const Vec<T>& x, bool tanh) {
  return tanh ? tanh_gate<T>(x) : exact_gate<T>(x);
}

template <class T>
void gelu_forward(Rows<const T> x, Rows<T> y, bool tanh, int64_t width, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* in = x.data + r * x.stride;
    T* out = y.data + r * y.stride;
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      const Vec<T> v = load_n<T>(in + c, n);
      store_n<T>(out + c, v * gelu_gate<T>(v, tanh).factor, n);
    });
  }
}

template <class T>
void gelu_backward(Rows<const T> x, Rows<const T> dy, Rows<T> dx, Rows<T> again, bool tanh, int64_t width,
                   int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* in = x.data + r * x.stride;
    const T* grads = dy.data + r * dy.stride;
    T* out = dx.data + r * dx.stride;
    T* value = again.data != nullptr ? again.data + r * again.stride : nullptr;
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      const Vec<T> v = load_n<T>(in + c, n);
      const Gate<T> gate = gelu_gate<T>(v, tanh);
      store_n<T>(out + c, load_n<T>(grads + c, n) * (gate.factor + v * gate.slope), n);
      if (value != nullptr) store_n<T>(value + c, v * gate.factor, n);
    });
  }
}

}  // namespace
}  // namespace loom::kernels
