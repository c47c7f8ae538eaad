#include "core/data/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include "core/base/parallel.h"

namespace loom {
namespace {

constexpr int kNicer = 5;  // a quarter of a core where everybody wants it: late samples would stop the training

}  // namespace

void behind_compute() {
  stay_on_this_thread();
  const auto thread = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, thread, ::getpriority(PRIO_PROCESS, thread) + kNicer);
}

}  // namespace loom
