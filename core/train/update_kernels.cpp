// Compiled with -O3: at -O2 gcc leaves loops of unknown length scalar.
#include "core/train/update_kernels.h"

#include <cmath>

namespace loom::kernels {

template <class T>
void adamw(T* __restrict__ weight, const T* __restrict__ gradient, T* __restrict__ exp_avg, T* __restrict__ exp_avg_sq,
           int64_t count, const AdamWConstants<T>& constants) {
  const AdamWConstants<T> c = constants;
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

template <class T>
void sgd(T* __restrict__ weight, const T* __restrict__ gradient, T* __restrict__ momentum_buffer, int64_t count,
         const SgdConstants<T>& constants) {
  const SgdConstants<T> c = constants;
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

template <class T>
double sum_of_squares(const T* values, int64_t count) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

template void adamw(float*, const float*, float*, float*, int64_t, const AdamWConstants<float>&);
template void adamw(double*, const double*, double*, double*, int64_t, const AdamWConstants<double>&);
template void sgd(float*, const float*, float*, int64_t, const SgdConstants<float>&);
template void sgd(double*, const double*, double*, int64_t, const SgdConstants<double>&);
template double sum_of_squares(const float*, int64_t);
template double sum_of_squares(const double*, int64_t);

}  // namespace loom::kernels
