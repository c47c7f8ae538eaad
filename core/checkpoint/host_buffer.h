#pragma once
// Host memory that a copy of tensors is written from while they are trained on. It is kept from save to save: fresh
// memory costs a page fault per page, in the middle of a step.
#include <cstdint>

#include "core/base/tensor.h"

namespace loom {

class HostBuffer {
 public:
  // `size` bytes; the memory of the last call when it has that size. Pinned memory is what a GPU copies to at full
  // speed.
  Tensor take(int64_t size, bool pinned);
  int64_t bytes() const { return memory_.defined() ? memory_.numel() : 0; }

 private:
  Tensor memory_;
  bool pinned_ = false;
};

}  // namespace loom
