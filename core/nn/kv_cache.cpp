#include "core/nn/kv_cache.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/upload.h"

namespace loom {

KvCache::Slab& KvCache::slab(size_t site, int64_t kv_width, const Tensor& like) {
  if (site >= slabs_.size()) slabs_.resize(site + 1);
  Slab& slab = slabs_[site];
  if (!slab.keys.defined()) {
    slab.keys = at::zeros({sequences() * capacity_, kv_width}, like.options());
    slab.values = at::zeros_like(slab.keys);
  }
  return slab;
}

void KvCache::advance(const std::vector<int64_t>& counts) {
  LOOM_CHECK(counts.size() == lengths_.size(), counts.size(), " counts for ", lengths_.size(), " sequences");
  for (size_t s = 0; s < counts.size(); ++s) lengths_[s] += counts[s];
}

void KvCache::select(const std::vector<int64_t>& kept) {
  const Tensor index = at::tensor(at::ArrayRef<int64_t>(kept), at::kLong);
  for (Slab& slab : slabs_) {
    for (Tensor* t : {&slab.keys, &slab.values}) {
      if (!t->defined()) continue;
      const int64_t width = t->size(1);
      *t = t->view({sequences(), capacity_, width}).index_select(0, upload(index, t->device())).view({-1, width});
    }
  }
  std::vector<int64_t> lengths;
  for (const int64_t s : kept) lengths.push_back(lengths_[s]);
  lengths_ = std::move(lengths);
}

}  // namespace loom
