#pragma once
// Keys and values of generation, one slab per attention site: [sequences * capacity, kv width]. Belongs to the
// attention service; plugins never see it.
#include <cstdint>
#include <vector>

#include "core/base/tensor.h"

namespace loom {

class KvCache {
 public:
  KvCache(int64_t sequences, int64_t capacity) : lengths_(sequences, 0), capacity_(capacity) {}

  struct Slab {
    Tensor keys, values;
  };
  // The slab of the n-th attention of a pass; made on first use.
  Slab& slab(size_t site, int64_t kv_width, const Tensor& like);
  const std::vector<int64_t>& lengths() const { return lengths_; }  // rows already held, per sequence
  int64_t capacity() const { return capacity_; }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  // After a pass over all units: sequence s has grown by counts[s] rows.
  void advance(const std::vector<int64_t>& counts);
  // Keeps only these sequences, in this order (finished ones leave).
  void select(const std::vector<int64_t>& sequences);

 private:
  std::vector<Slab> slabs_;
  std::vector<int64_t> lengths_;
  int64_t capacity_;
};

}  // namespace loom
