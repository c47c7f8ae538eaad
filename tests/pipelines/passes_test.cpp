// Passes of bounded tokens, and things made ahead but used in order.
#include "pipelines/passes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <vector>

#include "core/base/signal.h"
#include "pipelines/read_ahead.h"

namespace loom {
namespace {

TEST(Passes, AreFullAndNeverAboveTheBudget) {
  EXPECT_TRUE(split_passes({}, 10).empty());
  EXPECT_EQ(split_passes({4, 6, 1, 9, 1}, 10), (std::vector<Pass>{{0, 2}, {2, 4}, {4, 5}}));
  EXPECT_EQ(split_passes({30, 1, 30}, 10), (std::vector<Pass>{{0, 1}, {1, 2}, {2, 3}})) << "a long one is alone";
}

TEST(Passes, PromptsAreBoundedByWhatTheyKeep) {
  // 8 budgets of 10 = 80 rows of keys and values; each sequence keeps as many as the longest, plus 7 new ones.
  EXPECT_EQ(split_prompts(std::vector<int64_t>(10, 1), 7, 10), (std::vector<Pass>{{0, 10}}));
  EXPECT_EQ(split_prompts(std::vector<int64_t>(11, 1), 7, 11), (std::vector<Pass>{{0, 11}}));
  EXPECT_EQ(split_prompts({1, 1, 1, 1, 1, 1, 3, 1}, 17, 10), (std::vector<Pass>{{0, 4}, {4, 8}}));
  EXPECT_EQ(split_prompts({1, 1, 1, 3, 1}, 17, 10), (std::vector<Pass>{{0, 4}, {4, 5}}));
  EXPECT_EQ(split_prompts({5, 5, 5}, 1, 10), (std::vector<Pass>{{0, 2}, {2, 3}})) << "and by their own tokens";
  EXPECT_EQ(split_prompts({5, 5}, 1000, 10), (std::vector<Pass>{{0, 1}, {1, 2}})) << "one always goes";
}

TEST(ReadAhead, UsesInOrderWhateverThePoolDoes) {
  ThreadPool pool(4);
  for (ThreadPool* with : {static_cast<ThreadPool*>(nullptr), &pool}) {
    std::vector<int64_t> used;
    std::atomic<int> most{0}, now{0};
    const int64_t done = read_ahead(
        with, 200, 6,
        [&](int64_t i) {
          const int waiting = ++now;
          for (int seen = most; seen < waiting && !most.compare_exchange_weak(seen, waiting);) continue;
          return i * i;
        },
        [&](int64_t i, int64_t value) {
          --now;
          EXPECT_EQ(value, i * i);
          used.push_back(i);
        });
    EXPECT_EQ(done, 200);
    ASSERT_EQ(used.size(), 200u);
    for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(used[i], static_cast<int64_t>(i));
    EXPECT_LE(most, 7);
  }
}

TEST(ReadAhead, AnErrorEndsItWithNothingLeftRunning) {
  ThreadPool pool(3);
  std::atomic<int> running{0};
  const auto make = [&](int64_t i) {
    ++running;
    if (i == 17) {
      --running;
      throw std::runtime_error("seventeen");
    }
    --running;
    return i;
  };
  int64_t used = 0;
  EXPECT_THROW(read_ahead(&pool, 100, 8, make, [&](int64_t, int64_t) { ++used; }), std::runtime_error);
  EXPECT_EQ(used, 17);
  EXPECT_EQ(running, 0);
  EXPECT_THROW(read_ahead(
                   &pool, 100, 8, [](int64_t i) { return i; },
                   [&](int64_t i, int64_t) {
                     if (i == 5) throw std::logic_error("five");
                   }),
               std::logic_error);
  pool.wait();  // throws nothing: nobody is told of what nobody wants
}

TEST(ReadAhead, StopsWhenAsked) {
  ThreadPool pool(2);
  install_signal_handlers();
  int64_t used = 0;
  const int64_t done = read_ahead(
      &pool, 1000, 4, [](int64_t i) { return i; },
      [&](int64_t i, int64_t) {
        ++used;
        if (i == 9) ::raise(SIGTERM);
      });
  EXPECT_EQ(done, 10);
  EXPECT_EQ(used, 10);
  clear_stop_request();
}

}  // namespace
}  // namespace loom
