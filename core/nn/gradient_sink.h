#pragma once
// Where the gradient of a parameter is summed. A piece whose backward can add to memory (a product with accumulation)
// writes there and returns no gradient to autograd: nothing is allocated and nothing is added afterwards.
#include "core/base/tensor.h"

namespace loom {

struct GradientTarget {
  Tensor sum;          // in the parameter's shape and the dtype of its master
  bool fresh = false;  // nothing was added yet and it holds anything: overwrite
};

class GradientSink {
 public:
  virtual ~GradientSink();
  // For one contribution, which the caller makes at once. Only inside a backward that the tape runs.
  virtual GradientTarget open() = 0;
};

// A parameter as pieces take it. Without a sink its gradient goes to autograd.
struct Weight {
  Tensor value;
  GradientSink* sink = nullptr;
  bool defined() const { return value.defined(); }
};

}  // namespace loom
