// One body per kernel, compiled for each instruction set below. Compiled with -O3 (at -O2 gcc leaves loops of unknown
// length scalar), without contraction into fused multiply-adds and without errno of square roots: every set then gives
// the same bits, and the tail of a vector loop rounds like its body.
#include "core/train/update_kernels.h"

#include <cmath>

#include "core/nn/kernels/kernel_set.h"

#if defined(__x86_64__)
#define LOOM_AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define LOOM_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#else
#define LOOM_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#endif
#endif

namespace loom::kernels {
namespace {

template <class T, int kDoubles>
__attribute__((always_inline)) inline void adamw_body(T* __restrict__ weight, const T* __restrict__ gradient,
                                                      T* __restrict__ exp_avg, T* __restrict__ exp_avg_sq,
                                                      int64_t count, const AdamWConstants<T> c) {
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * c.grad_scale;
    const T m = exp_avg[i] + c.one_minus_beta1 * (g - exp_avg[i]);
    const T v = exp_avg_sq[i] * c.beta2 + (c.one_minus_beta2 * g) * g;
    const T denominator = std::sqrt(v) / c.correction2 + c.eps;
    weight[i] = weight[i] * c.keep - (c.step_size * m) / denominator;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
  }
}

template <class T, int kDoubles>
__attribute__((always_inline)) inline void sgd_body(T* __restrict__ weight, const T* __restrict__ gradient,
                                                    T* __restrict__ momentum_buffer, int64_t count,
                                                    const SgdConstants<T> c) {
  if (momentum_buffer == nullptr) {
    for (int64_t i = 0; i < count; ++i) weight[i] -= c.lr * (gradient[i] * c.grad_scale + c.weight_decay * weight[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * c.grad_scale + c.weight_decay * weight[i];
    const T m = c.momentum * momentum_buffer[i] + g;
    weight[i] -= c.lr * m;
    momentum_buffer[i] = m;
  }
}

// 32 sums, whatever the width of the vectors.
template <class T, int kDoubles>
__attribute__((always_inline)) inline double squares_body(const T* values, int64_t count) {
  constexpr int64_t kLanes = 32;
  typedef double Sum __attribute__((vector_size(kDoubles * sizeof(double))));
  typedef T Values __attribute__((vector_size(kDoubles * sizeof(T))));
  Sum sums[kLanes / kDoubles] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t s = 0; s < kLanes / kDoubles; ++s) {
      Values narrow;
      __builtin_memcpy(&narrow, values + i + s * kDoubles, sizeof(narrow));
      const Sum wide = __builtin_convertvector(narrow, Sum);
      sums[s] += wide * wide;
    }
  }
  double lanes[kLanes];
  __builtin_memcpy(lanes, sums, sizeof(lanes));
  for (; i < count; ++i) lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// A function per instruction set, with the doubles of its vectors, and which one the processor runs.
#if defined(__x86_64__)
#define LOOM_KERNEL(result, name, parameters, arguments)                     \
  template <class T>                                                         \
  result name##_generic parameters {                                         \
    return name##_body<T, 2> arguments;                                      \
  }                                                                          \
  template <class T>                                                         \
  LOOM_AVX2 result name##_avx2 parameters {                                  \
    return name##_body<T, 4> arguments;                                      \
  }                                                                          \
  template <class T>                                                         \
  LOOM_AVX512 result name##_avx512 parameters {                              \
    return name##_body<T, 8> arguments;                                      \
  }                                                                          \
  template <class T>                                                         \
  result name##_best parameters {                                            \
    if (current_level() == Level::avx512) return name##_avx512<T> arguments; \
    if (current_level() == Level::avx2) return name##_avx2<T> arguments;     \
    return name##_generic<T> arguments;                                      \
  }
#else
#define LOOM_KERNEL(result, name, parameters, arguments) \
  template <class T>                                     \
  result name##_best parameters {                        \
    return name##_body<T, 2> arguments;                  \
  }
#endif

LOOM_KERNEL(void, adamw,
            (T * weight, const T* gradient, T* exp_avg, T* exp_avg_sq, int64_t count, const AdamWConstants<T>& c),
            (weight, gradient, exp_avg, exp_avg_sq, count, c))
LOOM_KERNEL(void, sgd, (T * weight, const T* gradient, T* momentum_buffer, int64_t count, const SgdConstants<T>& c),
            (weight, gradient, momentum_buffer, count, c))
LOOM_KERNEL(double, squares, (const T* values, int64_t count), (values, count))

}  // namespace

template <class T>
void adamw(T* weight, const T* gradient, T* exp_avg, T* exp_avg_sq, int64_t count, const AdamWConstants<T>& c) {
  adamw_best<T>(weight, gradient, exp_avg, exp_avg_sq, count, c);
}

template <class T>
void sgd(T* weight, const T* gradient, T* momentum_buffer, int64_t count, const SgdConstants<T>& c) {
  sgd_best<T>(weight, gradient, momentum_buffer, count, c);
}

template <class T>
double sum_of_squares(const T* values, int64_t count) {
  return squares_best<T>(values, count);
}

template void adamw(float*, const float*, float*, float*, int64_t, const AdamWConstants<float>&);
template void adamw(double*, const double*, double*, double*, int64_t, const AdamWConstants<double>&);
template void sgd(float*, const float*, float*, int64_t, const SgdConstants<float>&);
template void sgd(double*, const double*, double*, int64_t, const SgdConstants<double>&);
template double sum_of_squares(const float*, int64_t);
template double sum_of_squares(const double*, int64_t);

}  // namespace loom::kernels
