#pragma once
// The global L2 norm of all gradients. Each element counts once (a tied parameter lives in one buffer), sums are
// double, and the order of additions is fixed by chunks of elements, never by threads: two runs clip by the same bits.
#include <string>
#include <utility>
#include <vector>

#include "core/parallel/unit_buffer.h"

namespace loom {

struct GradNorm {
  double total = 0;
  std::vector<std::pair<std::string, double>> components;  // "encoders.image" and so on, in the order of the buffers
  std::string not_finite;  // full name of the first parameter whose gradient is not; empty = all are
  bool finite() const { return not_finite.empty(); }
};

// Frozen buffers do not count.
GradNorm gradient_norm(const std::vector<UnitBuffer*>& buffers);
// What gradients are multiplied by: PyTorch's min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
double clip_factor(double norm, double max_norm);

}  // namespace loom
