#pragma once
// Memory for gathered weights: a few slabs of equal size, reused. A fresh allocation per gather costs far more than a
// reused slab (page faults), and equal sizes mean that nothing fragments.
#include <cstdint>
#include <vector>

namespace loom {

class SlabPool {
 public:
  explicit SlabPool(int64_t slab_bytes) : slab_bytes_(slab_bytes) {}
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  void* acquire(int64_t bytes);  // InternalError when bytes exceed the slab size
  void release(void* slab);
  int64_t slab_bytes() const { return slab_bytes_; }
  int64_t slabs() const { return static_cast<int64_t>(all_.size()); }  // ever made
  int64_t in_use() const { return static_cast<int64_t>(all_.size() - free_.size()); }

 private:
  int64_t slab_bytes_;
  std::vector<void*> all_, free_;
};

}  // namespace loom
