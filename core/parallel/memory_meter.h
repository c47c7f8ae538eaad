#pragma once
// Counts the bytes that tensors hold, live and at their peak, per kind of device: what a step really needed, and, on
// the meta device, what it would need (a dry run; its tensors hold no memory at all). LibTorch's allocators are
// replaced by ones that count; memory made before that keeps its old deleter and is not counted. On CPU the new one
// also keeps the memory of large tensors for the next ones (memory_pool.h).
//
// On CPU only threads that say so are counted, so that loader threads, whose pictures wait for their step, stay out of
// the number. Whatever a counted thread allocated counts until it is freed, whoever frees it.
#include <cstdint>

#include <c10/core/DeviceType.h>

namespace loom {

struct MemoryUse {
  int64_t live = 0;
  int64_t peak = 0;  // largest live since the last reset
};

// Once per process; further calls do nothing. Also counts the calling thread from now on.
void install_memory_meter();
bool memory_metered();

// Zeros when nobody meters. Of CUDA: what LibTorch's own allocator says of the GPU in use.
MemoryUse memory_use(c10::DeviceType device);
// The peak begins anew at what is live now.
void reset_memory_peak(c10::DeviceType device);

// Of the machine's memory: what large tensors hold, and what is kept for the next ones.
int64_t held_bytes();
// Between two steps: what is kept is bounded by what the last ones needed.
void end_memory_step();
// Gives back what is kept, when something else needs it or a phase with other sizes begins.
void release_unused_memory();

// Does this thread's memory count? For the rest of the scope.
class CountMemory {
 public:
  explicit CountMemory(bool count = true);
  ~CountMemory();
  CountMemory(const CountMemory&) = delete;
  CountMemory& operator=(const CountMemory&) = delete;

 private:
  bool before_;
};
// The same until the thread ends.
void count_memory_of_thread(bool count = true);

}  // namespace loom
