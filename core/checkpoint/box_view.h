#pragma once
// A part of a tensor that is itself a box of a global tensor.
#include "core/base/tensor.h"
#include "core/mesh/box.h"

namespace loom {

// The view of `part`, which lies inside `home`, the box that `tensor` is.
Tensor box_view(Tensor tensor, const Box& part, const Box& home);

}  // namespace loom
