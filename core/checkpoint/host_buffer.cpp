#include "core/checkpoint/host_buffer.h"

#include <sys/mman.h>

#include <ATen/ATen.h>

namespace loom {
namespace {

// Large pages where the system has them: fewer faults when the first snapshot is taken. Nothing is lost without.
void ask_for_large_pages(const Tensor& memory) {
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory.mutable_data_ptr());
  const uintptr_t from = (begin + kPage - 1) / kPage * kPage, to = (begin + memory.nbytes()) / kPage * kPage;
  if (to > from) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
}

}  // namespace

Tensor HostBuffer::take(int64_t size, bool pinned) {
  if (memory_.defined() && memory_.numel() == size && pinned_ == pinned) return memory_;
  memory_ = Tensor();  // before the new one is there
  memory_ = at::empty({size}, at::TensorOptions(at::kByte).pinned_memory(pinned));
  pinned_ = pinned;
  if (!pinned && size > 0) ask_for_large_pages(memory_);
  return memory_;
}

}  // namespace loom
