#pragma once
// What stands between the two products of a feed-forward block. Not differentiable by itself: the product after it
// (linear.h) owns its backward, so its value need not be kept.
#include "core/base/tensor.h"

namespace loom {

enum class Activation { swiglu = 1, gelu, gelu_tanh };

// [T, width], or [T, gate | up] for swiglu -> [T, width]. A new tensor.
Tensor activate(const Tensor& x, Activation activation);

struct ActivationBackward {
  Tensor dx;     // of x
  Tensor value;  // activate(x) again; undefined when it was not asked for
};
// `dvalue` [T, width] is dense, and used up: its memory may hold the value afterwards.
ActivationBackward activation_backward(const Tensor& x, const Tensor& dvalue, Activation activation, bool wants_value);

// The same by operations of ATen, with a gradient.
Tensor composed_activation(const Tensor& x, Activation activation);

}  // namespace loom
