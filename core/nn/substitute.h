#pragma once
// A value in place of another, with the other's gradient: what the recomputation of a unit puts where ctx.keep() was
// called.
#include "core/base/tensor.h"

namespace loom {

// The values of `kept`; gradients flow to `recomputed`.
Tensor substitute(const Tensor& recomputed, const Tensor& kept);

}  // namespace loom
