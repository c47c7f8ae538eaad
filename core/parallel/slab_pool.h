#pragma once
// Memory for gathered weights: a few slabs of equal size, reused. A fresh allocation per gather costs far more than a
// reused slab (page faults), and equal sizes mean that nothing fragments.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace loom {

class SlabPool {
 public:
  explicit SlabPool(int64_t slab_bytes, c10::Device device = c10::Device(c10::DeviceType::CPU))
      : slab_bytes_(slab_bytes), device_(device) {}
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  at::Tensor acquire(int64_t bytes);  // of bytes, uninitialised; InternalError when it exceeds the slab size
  void release(at::Tensor slab);
  int64_t slab_bytes() const { return slab_bytes_; }
  int64_t slabs() const { return made_; }  // ever made
  int64_t in_use() const { return made_ - static_cast<int64_t>(free_.size()); }

 private:
  int64_t slab_bytes_;
  c10::Device device_;
  int64_t made_ = 0;
  std::vector<at::Tensor> free_;
};

}  // namespace loom
