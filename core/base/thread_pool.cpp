// One queue under one lock: tasks are files and pictures, long enough that nothing finer pays.
#include "core/base/thread_pool.h"

#include "core/base/error.h"

namespace loom {
namespace {

thread_local bool in_worker = false;

}  // namespace

namespace detail {

TaskState::~TaskState() = default;

void TaskState::finish(std::exception_ptr problem) {
  std::lock_guard<std::mutex> guard(mutex);
  error = std::move(problem);
  done = true;
  changed.notify_all();
}

void TaskState::wait_and_rethrow() {
  std::unique_lock<std::mutex> lock(mutex);
  LOOM_CHECK(done || !in_worker, "a task of the pool waits for another task; the pool could run dry");
  changed.wait(lock, [this] { return done; });
  seen = true;
  if (error) std::rethrow_exception(error);
}

}  // namespace detail

ThreadPool::ThreadPool(int threads, std::function<void()> first) {
  LOOM_CHECK(threads >= 1, "a pool of ", threads, " threads");
  threads_.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, first] { work(first); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::push(std::shared_ptr<detail::TaskState> state, std::function<void()> run) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    queue_.push_back({std::move(state), std::move(run)});
  }
  wake_.notify_one();
}

void ThreadPool::work(const std::function<void()>& first) {
  in_worker = true;
  if (first) first();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    std::exception_ptr problem;
    try {
      job.run();
    } catch (...) {
      problem = std::current_exception();
    }
    job.run = nullptr;  // what the task captured goes before anybody hears of the result
    job.state->finish(problem);
    lock.lock();
    if (problem) failed_.push_back(job.state);
    --running_;
    if (queue_.empty() && running_ == 0) idle_.notify_all();
  }
}

void ThreadPool::wait() {
  LOOM_CHECK(!in_worker, "wait() inside a task of the pool");
  std::vector<std::shared_ptr<detail::TaskState>> failed;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && running_ == 0; });
    failed.swap(failed_);
  }
  for (const std::shared_ptr<detail::TaskState>& state : failed) {
    bool seen = false;
    {
      std::lock_guard<std::mutex> guard(state->mutex);
      seen = state->seen;
    }
    if (!seen) state->wait_and_rethrow();
  }
}

}  // namespace loom
