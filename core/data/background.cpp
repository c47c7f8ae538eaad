#include "core/data/background.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ATen/Parallel.h>

namespace loom {
namespace {

constexpr int kNicer = 5;  // a quarter of a core where everybody wants it: late samples would stop the training

}  // namespace

void behind_compute() {
  at::get_num_threads();  // the first use in a thread sets it to the process's number
  // Whichever OpenMP LibTorch has brought; at::set_num_threads would also change what later threads begin with.
  if (void* set = ::dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(1);
  const auto thread = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, thread, ::getpriority(PRIO_PROCESS, thread) + kNicer);
}

}  // namespace loom
