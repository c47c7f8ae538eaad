#include "core/base/parallel.h"

#include <ATen/Parallel.h>
#include <omp.h>

#ifndef INTRA_OP_PARALLEL
#error "this file must be compiled with OpenMP"
#endif

namespace loom {

void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) { body(from, to); });
}

void stay_on_this_thread() {
  at::get_num_threads();   // the first use in a thread sets it to the process's number
  omp_set_num_threads(1);  // at::set_num_threads would also change what later threads begin with
}

}  // namespace loom
