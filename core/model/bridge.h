#pragma once
// From one component's rows to the next one's, wherever both lie, and into the backbone's stream; and the exact adjoint
// of each. Moves are routes planned with the batch (design, idea 5).
#include <string_view>

#include "core/base/tensor.h"
#include "core/model/component.h"
#include "core/model/model_batch.h"

namespace loom {

class Communicator;

// rows [source rows, width] -> [destination rows, width]; the same tensor when nothing moves.
Tensor move_rows(Communicator& comm, std::string_view what, const RowMove& move, const Tensor& rows);
// The adjoint: gradient of the result -> gradient of `rows`, which had `source_rows`.
Tensor move_rows_adjoint(Communicator& comm, std::string_view what, const RowMove& move, const Tensor& gradient,
                         int64_t source_rows);

// hidden [T, width] with rows `slots` replaced by `rows` [slots, width], or increased by them.
Tensor bridge_forward(const Tensor& hidden, const Tensor& slots, const Tensor& rows, BridgeMode mode);

// The adjoint: returns the gradient of `rows` and, if they replaced others, clears those rows in `gradient` (what was
// replaced receives nothing).
Tensor bridge_backward(Tensor& gradient, const Tensor& slots, BridgeMode mode);

}  // namespace loom
