#pragma once
// Embeddings into the backbone's rows, and their gradients back out: on one rank a scatter and its adjoint. Under
// layouts the same two functions move rows between ranks (design, idea 5).
#include "core/base/tensor.h"

namespace loom {

// hidden [T, width] with rows `slots` replaced by `rows` [slots, width].
Tensor bridge_forward(const Tensor& hidden, const Tensor& slots, const Tensor& rows);

// The adjoint: returns the gradient of `rows` and clears those rows in `gradient` (what was replaced receives nothing).
Tensor bridge_backward(Tensor& gradient, const Tensor& slots);

}  // namespace loom
