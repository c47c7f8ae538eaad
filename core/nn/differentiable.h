#pragma once
// The one place where an operation of ours meets autograd: a value computed without it becomes a function of its
// inputs. One torch::autograd::Function in one file keeps the expensive header out of every layer.
#include <functional>
#include <vector>

#include "core/base/tensor.h"

namespace loom {

struct BackwardCall {
  Tensor grad;                // of the output; of the first, when there are several
  std::vector<Tensor> grads;  // of every output
  std::vector<Tensor> saved;  // what was handed to differentiable()
  std::vector<bool> needs;    // which inputs want a gradient
};

// Returns one gradient per input; undefined where none is needed.
using BackwardFunction = std::function<std::vector<Tensor>(const BackwardCall& call)>;

// Does autograd record, and does any of these want a gradient?
bool wants_gradient(const std::vector<Tensor>& inputs);

// `output` (which shares no memory with the inputs), with a history. When nothing wants a gradient, output itself.
Tensor differentiable(const Tensor& output, const std::vector<Tensor>& inputs, std::vector<Tensor> saved,
                      BackwardFunction backward);

// The same for several outputs, one of which may be an input itself. An output that nobody differentiated has an
// undefined gradient.
std::vector<Tensor> differentiable(std::vector<Tensor> outputs, const std::vector<Tensor>& inputs,
                                   std::vector<Tensor> saved, BackwardFunction backward);

}  // namespace loom
