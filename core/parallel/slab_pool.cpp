#include "core/parallel/slab_pool.h"

#include <ATen/ops/empty.h>

#include "core/base/error.h"

namespace loom {

at::Tensor SlabPool::acquire(int64_t bytes) {
  LOOM_CHECK(bytes <= slab_bytes_, "a slab of ", slab_bytes_, " bytes cannot hold ", bytes);
  if (!free_.empty()) {
    at::Tensor slab = std::move(free_.back());
    free_.pop_back();
    return slab;
  }
  try {
    at::Tensor slab = at::empty({slab_bytes_}, at::TensorOptions(at::kByte).device(device_));
    ++made_;
    return slab;
  } catch (const c10::Error&) {
    throw EnvironmentError(concat("out of memory: a slab of ", slab_bytes_, " bytes for gathered weights"));
  }
}

void SlabPool::release(at::Tensor slab) { free_.push_back(std::move(slab)); }

}  // namespace loom
