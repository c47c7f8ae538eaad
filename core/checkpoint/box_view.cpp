#include "core/checkpoint/box_view.h"

#include <ATen/ATen.h>

namespace loom {

Tensor box_view(Tensor tensor, const Box& part, const Box& home) {
  for (int64_t d = 0; d < part.rank(); ++d) {
    const size_t i = static_cast<size_t>(d);
    tensor = tensor.narrow(d, part.offset[i] - home.offset[i], part.size[i]);
  }
  return tensor;
}

}  // namespace loom
