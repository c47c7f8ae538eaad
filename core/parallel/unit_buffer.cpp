// One storage object per buffer lives as long as the buffer; its memory comes and goes. So tensors that autograd saved
// in forward are valid again after the weights were released and gathered anew, wherever the new slab lies.
#include "core/parallel/unit_buffer.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace loom {
namespace {

at::Tensor shaped(const at::Tensor& flat, const BufferEntry& entry) {
  return flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
}

}  // namespace

int64_t place_entries(std::vector<BufferEntry>& entries, int64_t align_elements) {
  int64_t next = 0;
  for (BufferEntry& entry : entries) {
    entry.offset = next;
    next += (entry.numel + align_elements - 1) / align_elements * align_elements;
  }
  return next;
}

UnitBuffer::UnitBuffer(std::string unit, std::vector<BufferEntry> entries, Options options)
    : unit_(std::move(unit)), entries_(std::move(entries)), options_(options) {
  const auto element =
      static_cast<int64_t>(std::min(c10::elementSize(options.master), c10::elementSize(options.compute)));
  numel_ = place_entries(entries_, 64 / element);
  in_place_ = options.master == options.compute && !options.always_slab;
  master_ = at::zeros({numel_}, options.master);
  if (in_place_) {
    gathered_ = master_;
  } else {
    const size_t bytes = static_cast<size_t>(gathered_bytes());
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, at::kCPU), nullptr, false);
    gathered_ = at::empty({0}, options.compute).set_(storage, 0, {numel_}, {1});
  }
  for (const BufferEntry& entry : entries_) {
    at::Tensor weight = shaped(gathered_, entry).detach();
    if (entry.adopted.defined()) {
      shaped(master_, entry).copy_(entry.adopted.detach());
      at::Tensor adopted = entry.adopted;
      adopted.set_data(weight);
      weight = adopted;
    }
    weights_.push_back(weight.requires_grad_(options.trainable));
  }
}

UnitBuffer::~UnitBuffer() = default;

int64_t UnitBuffer::gathered_bytes() const { return numel_ * static_cast<int64_t>(c10::elementSize(options_.compute)); }

at::Tensor& UnitBuffer::gradient() {
  if (options_.trainable && !gradient_.defined()) gradient_ = at::zeros({numel_}, options_.master);
  return gradient_;
}

at::Tensor UnitBuffer::master_of(size_t entry) const { return shaped(master_, entries_.at(entry)); }

at::Tensor UnitBuffer::gradient_of(size_t entry) { return shaped(gradient(), entries_.at(entry)); }

void UnitBuffer::gather(SlabPool& pool) {
  if (users_++ > 0 || in_place_) return;
  slab_ = pool.acquire(gathered_bytes());
  gathered_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(slab_, at::kCPU));
  // Filled through an alias, so that version counters of saved tensors do not move.
  at::from_blob(slab_, {numel_}, at::TensorOptions(options_.compute)).copy_(master_);
}

void UnitBuffer::release(SlabPool& pool) {
  LOOM_CHECK(users_ > 0, unit_, ": released more often than gathered");
  if (--users_ > 0 || in_place_) return;
  gathered_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, at::kCPU));
  pool.release(slab_);
  slab_ = nullptr;
}

}  // namespace loom
