#pragma once
// Rows that came from other ranks, as a function of what they came from: the gradient of a move is its adjoint.
#include <string>

#include "core/base/tensor.h"
#include "core/reshard/redistribute.h"

namespace loom {

class Communicator;

enum class Way { along = 1, back };  // a route, or its adjoint, which adds

// `values`, made of `source` on that way, with a history. `name`: of the move of gradients.
Tensor moved_rows(Communicator& comm, std::string name, const Route& route, Way way, const Tensor& values,
                  const Tensor& source);

}  // namespace loom
