// Threads that prepare samples: operations of LibTorch stay on them, and they stand behind the others.
#include "core/data/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "core/base/thread_pool.h"

namespace loom {
namespace {

int64_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

struct Seen {
  int64_t started = 0;  // threads, by a large operation
  int nice = 0;
};

Seen seen_in(ThreadPool& pool) {
  return pool
      .submit([] {
        const int64_t before = threads_of_process();
        const double sum = (at::ones({1 << 20}) * 3).sum().item<double>();
        EXPECT_EQ(sum, 3.0 * (1 << 20));
        const int nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
        return Seen{threads_of_process() - before, nice};
      })
      .get();
}

TEST(Background, LargeOperationsStayOnTheThread) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  ThreadPool plain(1), behind(1, behind_compute);
  EXPECT_EQ(seen_in(plain).started, 2);  // what it is there against
  const Seen seen = seen_in(behind);
  EXPECT_EQ(seen.started, 0);
  const int here = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
  if (here < 15) {
    EXPECT_GT(seen.nice, here);
  }
  EXPECT_EQ(at::get_num_threads(), 3);  // of everybody else
  at::set_num_threads(before);
}

}  // namespace
}  // namespace loom
