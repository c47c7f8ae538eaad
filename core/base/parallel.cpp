#include "core/base/parallel.h"

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "this file must be compiled with OpenMP"
#endif

namespace loom {

void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) { body(from, to); });
}

}  // namespace loom
