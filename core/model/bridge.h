#pragma once
// Embeddings into rows of the backbone's stream, and the exact adjoint. How they come to the ranks of these rows is
// core/reshard/row_move.h.
#include "core/base/tensor.h"
#include "core/model/component.h"

namespace loom {

// hidden [T, width] with rows `slots` replaced by `rows` [slots, width], or increased by them.
Tensor bridge_forward(const Tensor& hidden, const Tensor& slots, const Tensor& rows, BridgeMode mode);

// The adjoint: returns the gradient of `rows` and, if they replaced others, clears those rows in `gradient` (what was
// replaced receives nothing).
Tensor bridge_backward(Tensor& gradient, const Tensor& slots, BridgeMode mode);

}  // namespace loom
