// Loops really run on several threads, and every index is visited once.
#include "core/base/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace loom {
namespace {

class ParallelFor : public testing::Test {
 protected:
  ParallelFor() : before_(at::get_num_threads()) {}
  ~ParallelFor() override { at::set_num_threads(before_); }

 private:
  int before_;
};

TEST_F(ParallelFor, UsesTheThreadsThatAreAllowed) {
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      const std::lock_guard<std::mutex> lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(seen.size(), static_cast<size_t>(threads));
  }
}

TEST_F(ParallelFor, VisitsEveryIndexOnce) {
  at::set_num_threads(3);
  std::vector<std::atomic<int>> visits(1000);
  parallel_for(0, 1000, 7, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  for (const auto& count : visits) EXPECT_EQ(count, 1);
  parallel_for(5, 5, 1, [](int64_t, int64_t) { ADD_FAILURE() << "nothing to do"; });
}

}  // namespace
}  // namespace loom
