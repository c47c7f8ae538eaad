#pragma once
// Norms over the last dimension, each row alone, with the residual addition before them: one pass over memory.
#include "core/base/tensor.h"
#include "core/nn/gradient_sink.h"

namespace loom {

// x / rms(x) * weight; layer norm, (x - mean) / deviation * weight + bias, when there is a bias. x [..., width].
Tensor norm(const Tensor& x, const Weight& weight, const Weight& bias, double eps);

struct AddedNorm {
  Tensor sum;     // x + delta; x itself when there is no delta
  Tensor normed;  // norm(sum)
};
// A block goes on with both. Their gradients are joined inside the norm's backward.
AddedNorm add_norm(const Tensor& x, const Tensor& delta, const Weight& weight, const Weight& bias, double eps);

}  // namespace loom
