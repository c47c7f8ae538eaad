#pragma once
// The arithmetic of one optimizer step over a contiguous range, for the instruction set in use (core/nn/kernels).
// Free of ATen, so that this one file can be compiled with its own optimisation level. Everything is elementwise:
// cutting a range differently changes no bit.
#include <cstdint>

namespace loom::kernels {

// All constants of a step, already in the type of the arithmetic.
template <class T>
struct AdamWConstants {
  T grad_scale;  // the clip factor, multiplied in while reading
  T keep;        // 1 - lr * weight_decay
  T one_minus_beta1;
  T beta2, one_minus_beta2;
  T step_size;    // lr / (1 - beta1^t)
  T correction2;  // sqrt(1 - beta2^t)
  T eps;
};

// In the order of torch.optim.AdamW: decay, moments, denominator sqrt(v) / correction2 + eps, then the update.
template <class T>
void adamw(T* weight, const T* gradient, T* exp_avg, T* exp_avg_sq, int64_t count, const AdamWConstants<T>& c);

template <class T>
struct SgdConstants {
  T grad_scale;
  T weight_decay;  // added to the gradient, as torch.optim.SGD does
  T momentum;
  T lr;
};

// momentum_buffer may be null when there is no momentum.
template <class T>
void sgd(T* weight, const T* gradient, T* momentum_buffer, int64_t count, const SgdConstants<T>& c);

// In double, over 32 interleaved partial sums that are added in a fixed order.
template <class T>
double sum_of_squares(const T* values, int64_t count);

}  // namespace loom::kernels
