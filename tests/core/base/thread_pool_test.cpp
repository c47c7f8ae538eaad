// The pool: results, order, errors that must not get lost.
#include "core/base/thread_pool.h"

#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;

TEST(ThreadPool, ReturnsResults) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.size(), 3);
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 200; ++i) tasks.push_back(pool.submit([i] { return i * i; }));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(tasks[static_cast<std::size_t>(i)].get(), i * i);
  pool.wait();
}

TEST(ThreadPool, OneThreadKeepsTheOrder) {
  ThreadPool pool(1);
  std::vector<int> seen;
  for (int i = 0; i < 50; ++i) pool.submit([&seen, i] { seen.push_back(i); });
  pool.wait();
  std::vector<int> expected(50);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST(ThreadPool, MovesMoveOnlyResultsAndFunctions) {
  ThreadPool pool(2);
  std::unique_ptr<int> given = std::make_unique<int>(7);
  Task<std::unique_ptr<int>> task = pool.submit([moved = std::move(given)]() mutable { return std::move(moved); });
  EXPECT_EQ(*task.get(), 7);
}

TEST(ThreadPool, WaitRethrowsTheFirstErrorOnce) {
  ThreadPool pool(1);
  std::atomic<int> ran{0};
  pool.submit([&ran] { ++ran; });
  pool.submit([] { throw UserError("first"); });
  pool.submit([] { throw UserError("second"); });
  pool.submit([&ran] { ++ran; });
  EXPECT_EQ(message_of<UserError>([&] { pool.wait(); }), "first");
  EXPECT_EQ(ran, 2);
  pool.wait();
}

TEST(ThreadPool, AnErrorThatSomebodySawIsNotThrownAgain) {
  ThreadPool pool(1);
  Task<int> task = pool.submit([]() -> int { throw EnvironmentError("seen"); });
  EXPECT_EQ(message_of<EnvironmentError>([&] { task.get(); }), "seen");
  EXPECT_TRUE(task.ready());
  pool.wait();
}

TEST(ThreadPool, TheDestructorFinishesWhatWasSubmitted) {
  std::atomic<int> ran{0};
  Task<void> last;
  {
    ThreadPool pool(2);
    for (int i = 0; i < 100; ++i) last = pool.submit([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
  last.get();
}

TEST(ThreadPool, WaitingInsideATaskIsOurBug) {
  ThreadPool pool(1);
  Task<void> task = pool.submit([&pool] { pool.wait(); });
  EXPECT_THROW(task.get(), InternalError);
  EXPECT_THROW(ThreadPool(0), InternalError);
}

TEST(ThreadPool, CapturesAreReleasedBeforeTheResultIsSeen) {
  ThreadPool pool(1);
  std::shared_ptr<int> held = std::make_shared<int>(1);
  for (int i = 0; i < 100; ++i) {
    pool.submit([held] { return *held; }).get();
    ASSERT_EQ(held.use_count(), 1) << i;
  }
}

}  // namespace
}  // namespace loom
