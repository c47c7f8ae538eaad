#pragma once
// Many independent things made in a pool and used in order, with at most so many waiting: how commands go over samples
// that are dropped as they come.
#include <cstdint>
#include <deque>
#include <memory>
#include <type_traits>

#include "core/base/signal.h"
#include "core/base/thread_pool.h"

namespace loom {

// use(i, make(i)) for i = 0, 1, ... on this thread; make runs in the pool, or here without one. Ends early when a stop
// is requested, or when an error comes out of either; nothing of it runs any more when this returns. Returns how many
// were used.
template <class Make, class Use>
int64_t read_ahead(ThreadPool* pool, int64_t count, int64_t ahead, const Make& make, const Use& use) {
  using Made = std::invoke_result_t<Make, int64_t>;
  int64_t done = 0, started = 0;
  if (pool == nullptr) {
    for (; done < count && !stop_requested(); ++done) use(done, make(done));
    return done;
  }
  struct Window {
    std::deque<Task<Made>> tasks{};
    ~Window() {
      for (Task<Made>& task : tasks) {
        try {
          task.get();
        } catch (...) {  // nobody wants the result any more, so nobody is told
        }
      }
    }
  } window;
  while (done < count && !stop_requested()) {
    for (; started < count && started - done < ahead; ++started)
      window.tasks.push_back(pool->submit([&make, at = started] { return make(at); }));
    Task<Made> task = std::move(window.tasks.front());
    window.tasks.pop_front();
    use(done, task.get());
    ++done;
  }
  return done;
}

}  // namespace loom
