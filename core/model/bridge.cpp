#include "core/model/bridge.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"

namespace loom {

Tensor bridge_forward(const Tensor& hidden, const Tensor& slots, const Tensor& rows, BridgeMode mode) {
  LOOM_CHECK(slots.size(0) == rows.size(0), "the bridge has ", slots.size(0), " slots for ", rows.size(0),
             " embeddings");
  const c10::AutoGradMode no_grad(false);
  const Tensor values = rows.to(hidden.scalar_type());
  return mode == BridgeMode::add ? hidden.index_add(0, slots, values) : hidden.index_copy(0, slots, values);
}

Tensor bridge_backward(Tensor& gradient, const Tensor& slots, BridgeMode mode) {
  const c10::AutoGradMode no_grad(false);
  Tensor rows = gradient.index_select(0, slots);
  if (mode == BridgeMode::replace) gradient = gradient.index_fill(0, slots, 0);
  return rows;
}

}  // namespace loom
