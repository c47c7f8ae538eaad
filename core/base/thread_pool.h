#pragma once
// The one pool: decoding, hashing and writing of files run here, so that the number of threads of a process is decided
// in one place. An error is never lost: whoever asks for a task's result gets it, and wait() rethrows the first one
// nobody asked for.
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace loom {

namespace detail {

struct TaskState {
  virtual ~TaskState();
  void finish(std::exception_ptr problem);
  void wait_and_rethrow();  // blocks until done; marks an error as seen

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool seen = false;
  std::exception_ptr error;
};

template <class T>
struct TaskResult : TaskState {
  std::optional<T> value;
};

template <>
struct TaskResult<void> : TaskState {};

}  // namespace detail

// The result of a task that may still be running. Copies share it.
template <class T>
class Task {
 public:
  Task() = default;
  bool valid() const { return state_ != nullptr; }
  bool ready() const {
    std::lock_guard<std::mutex> guard(state_->mutex);
    return state_->done;
  }
  // Waits; rethrows the task's error. A value is moved out: ask once.
  T get() {
    state_->wait_and_rethrow();
    if constexpr (!std::is_void_v<T>) return std::move(*state_->value);
  }

 private:
  friend class ThreadPool;
  explicit Task(std::shared_ptr<detail::TaskResult<T>> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::TaskResult<T>> state_;
};

class ThreadPool {
 public:
  // Each thread runs `first` before its first task.
  explicit ThreadPool(int threads, std::function<void()> first = {});
  ~ThreadPool();  // finishes what was submitted, then joins
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Tasks start in the order in which they were submitted.
  template <class F>
  Task<std::invoke_result_t<F>> submit(F function) {
    using Result = std::invoke_result_t<F>;
    std::shared_ptr<detail::TaskResult<Result>> state = std::make_shared<detail::TaskResult<Result>>();
    std::shared_ptr<F> body = std::make_shared<F>(std::move(function));
    push(state, [state, body] {
      if constexpr (std::is_void_v<Result>) {
        (*body)();
      } else {
        state->value.emplace((*body)());
      }
    });
    return Task<Result>(state);
  }

  // Until nothing is queued or running; then rethrows the first error whose task nobody asked. Not from inside a task.
  void wait();
  int size() const { return static_cast<int>(threads_.size()); }

 private:
  struct Job {
    std::shared_ptr<detail::TaskState> state;
    std::function<void()> run;
  };
  void push(std::shared_ptr<detail::TaskState> state, std::function<void()> run);
  void work(const std::function<void()>& first);

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Job> queue_;
  std::vector<std::shared_ptr<detail::TaskState>> failed_;
  int running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace loom
