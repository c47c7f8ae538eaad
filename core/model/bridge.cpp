#include "core/model/bridge.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"

namespace loom {

Tensor bridge_forward(const Tensor& hidden, const Tensor& slots, const Tensor& rows) {
  LOOM_CHECK(slots.size(0) == rows.size(0), "the bridge has ", slots.size(0), " slots for ", rows.size(0),
             " embeddings");
  const c10::AutoGradMode no_grad(false);
  return hidden.index_copy(0, slots, rows.to(hidden.scalar_type()));
}

Tensor bridge_backward(Tensor& gradient, const Tensor& slots) {
  const c10::AutoGradMode no_grad(false);
  Tensor rows = gradient.index_select(0, slots);
  gradient = gradient.index_fill(0, slots, 0);
  return rows;
}

}  // namespace loom
