#pragma once
// Loops over LibTorch's own threads. LibTorch's header runs them one after another wherever it is compiled without
// OpenMP, silently; so one file of ours is compiled with it, and everybody calls that.
#include <cstdint>
#include <functional>

namespace loom {

// Calls body(from, to) for consecutive parts of [begin, end), of `grain` or more each, on as many threads as
// at::set_num_threads allows; in one piece when they are few, or inside of another such loop.
void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// LibTorch's operations that this thread calls stay on it.
void stay_on_this_thread();

}  // namespace loom
