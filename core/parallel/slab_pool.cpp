#include "core/parallel/slab_pool.h"

#include <cstdlib>

#include "core/base/error.h"

namespace loom {

SlabPool::~SlabPool() {
  for (void* slab : all_) std::free(slab);
}

void* SlabPool::acquire(int64_t bytes) {
  LOOM_CHECK(bytes <= slab_bytes_, "a slab of ", slab_bytes_, " bytes cannot hold ", bytes);
  if (free_.empty()) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, static_cast<size_t>(slab_bytes_)) != 0) {
      throw EnvironmentError(concat("out of memory: a slab of ", slab_bytes_, " bytes for gathered weights"));
    }
    all_.push_back(memory);
    return memory;
  }
  void* slab = free_.back();
  free_.pop_back();
  return slab;
}

void SlabPool::release(void* slab) { free_.push_back(slab); }

}  // namespace loom
