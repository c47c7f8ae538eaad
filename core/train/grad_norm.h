#pragma once
// The global L2 norm of all gradients. Each element counts once: a tied parameter lives in one buffer, and of the
// ranks that hold copies of a part only one counts it. Sums are double, their order is fixed by chunks of elements and
// by ranks, never by threads: all ranks clip by the same bits, and so do two runs.
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/parallel/unit_buffer.h"

namespace loom {

struct GradNorm {
  double total = 0;
  std::vector<std::pair<std::string, double>> components;  // "encoders.image" and so on, in the order of the buffers
  std::string not_finite;  // full name of the first parameter whose gradient is not; empty = all are
  bool finite() const { return not_finite.empty(); }
};

// Over the parts of all ranks; all of them call it with buffers of the same parameters and get the same. Frozen buffers
// do not count.
GradNorm gradient_norm(const std::vector<UnitBuffer*>& buffers, Communicator& comm = alone());
// What gradients are multiplied by: PyTorch's min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
double clip_factor(double norm, double max_norm);

}  // namespace loom
