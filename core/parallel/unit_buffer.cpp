// One storage object per buffer lives as long as the buffer; its memory comes and goes. So tensors that autograd saved
// in forward are valid again after the weights were released and gathered anew, wherever the new slab lies.
#include "core/parallel/unit_buffer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {
namespace {

at::Tensor shaped(const at::Tensor& flat, const BufferEntry& entry) {
  return flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
}

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

int part_of(const Sharding& sharding) {
  return sharding.comm == nullptr || sharding.shard.empty() ? 0 : index_in(sharding.shard, sharding.comm->rank());
}

}  // namespace

UnitBuffer::UnitBuffer(std::string unit, std::vector<BufferEntry> params, Options options, Sharding sharding)
    : unit_(std::move(unit)), params_(std::move(params)), options_(options), sharding_(std::move(sharding)) {
  if (sharding_.shard.empty()) sharding_.shard = {0};
  const int ranks = static_cast<int>(sharding_.shard.size()), part = part_of(sharding_);
  LOOM_CHECK(part >= 0, unit_, ": this rank is no member of the group that holds its weights");
  numel_ = place_params(params_, ranks, 64 / std::min(bytes_of(options.master), bytes_of(options.compute)));
  own_entries(part * numel_);
  counted_ = sharding_.replicate.size() < 2 || sharding_.replicate.front() == sharding_.comm->rank();
  contributed_.resize(params_.size());
  in_place_ = ranks == 1 && options.master == options.compute && !options.always_slab;
  master_ = at::zeros({numel_}, options.master);
  if (in_place_) {
    gathered_ = master_;
  } else {
    const auto bytes = static_cast<size_t>(gathered_bytes());
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, at::kCPU), nullptr, false);
    gathered_ = at::empty({0}, options.compute).set_(storage, 0, {numel_ * ranks}, {1});
  }
  for (const BufferEntry& entry : entries_) {
    if (!entry.adopted.defined()) continue;
    at::Tensor rows = entry.adopted.detach();
    rows = rows.narrow(0, entry.box.offset[0], entry.box.size[0]);
    shaped(master_, entry).copy_(rows);
  }
  for (const BufferEntry& param : params_) {
    at::Tensor weight = shaped(gathered_, param).detach();
    if (param.adopted.defined()) {
      at::Tensor adopted = param.adopted;
      adopted.set_data(weight);
      weight = adopted;
    }
    weights_.push_back(weight.requires_grad_(options.trainable));
  }
}

UnitBuffer::~UnitBuffer() = default;

// Boxes of whole rows of every parameter that reaches into [first, first + numel_).
void UnitBuffer::own_entries(int64_t first) {
  for (const BufferEntry& param : params_) {
    const int64_t begin = std::max(param.offset, first), end = std::min(param.offset + param.numel, first + numel_);
    if (begin >= end) continue;
    BufferEntry entry = param;
    entry.global_shape = param.shape;
    entry.box = whole_box(param.shape);
    if (!param.shape.empty()) {  // a scalar is never cut
      const int64_t row = param.numel / param.shape[0];
      entry.box.offset[0] = (begin - param.offset) / row;
      entry.box.size[0] = (end - begin) / row;
    }
    entry.shape = entry.box.size;
    entry.offset = begin - first;
    entry.numel = end - begin;
    entries_.push_back(std::move(entry));
  }
}

int64_t UnitBuffer::padding() const {
  int64_t used = 0;
  for (const BufferEntry& param : params_) used += param.numel;
  return numel_ * static_cast<int64_t>(sharding_.shard.size()) - used;
}

int64_t UnitBuffer::gathered_bytes() const {
  return numel_ * static_cast<int64_t>(sharding_.shard.size()) * bytes_of(options_.compute);
}

int64_t UnitBuffer::slab_bytes() const {
  const int64_t weights = in_place_ ? 0 : gathered_bytes();
  if (!sharded() || !options_.trainable) return weights;
  return std::max(weights, gathered_bytes() / bytes_of(options_.compute) * bytes_of(options_.master));
}

at::Tensor& UnitBuffer::gradient() {
  if (options_.trainable && !gradient_.defined()) gradient_ = at::zeros({numel_}, options_.master);
  return gradient_;
}

at::Tensor UnitBuffer::master_of(size_t entry) const { return shaped(master_, entries_.at(entry)); }

at::Tensor UnitBuffer::gradient_of(size_t entry) { return shaped(gradient(), entries_.at(entry)); }

void UnitBuffer::begin_gather(SlabPool& pool) {
  if (slab_ == nullptr) {
    slab_ = pool.acquire(gathered_bytes());
    gathered_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(slab_, at::kCPU));
  }
  filled_generation_ = generation_;
  // Filled through an alias, so that version counters of saved tensors do not move.
  filling_ = at::from_blob(slab_, {gathered_.size(0)}, at::TensorOptions(options_.compute));
  const at::Tensor mine = filling_.narrow(0, part_of(sharding_) * numel_, numel_);
  mine.copy_(master_);
  if (fault(Fault::stale_weights)) {
    if (seen_generation_ != generation_) {
      seen_[0] = seen_[1];
      seen_[1] = mine.clone();
      seen_generation_ = generation_;
    }
    if (seen_[0].defined()) mine.copy_(seen_[0]);
  }
  if (sharded()) pending_ = sharding_.comm->all_gather(unit_ + ": weights", sharding_.shard, mine, filling_);
  started_ = true;
}

void UnitBuffer::start_gather(SlabPool& pool) {
  if (in_place_ || users_ > 0 || started_) return;
  begin_gather(pool);
}

void UnitBuffer::gather(SlabPool& pool) {
  if (users_++ > 0 || in_place_) return;
  if (started_ && filled_generation_ != generation_) {  // started before the weights were written
    pending_.wait();
    started_ = false;
  }
  if (!started_) begin_gather(pool);
  pending_.wait();
  started_ = false;
  filling_ = at::Tensor();
}

void UnitBuffer::release(SlabPool& pool) {
  LOOM_CHECK(users_ > 0, unit_, ": released more often than gathered");
  if (--users_ > 0 || in_place_) return;
  gathered_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, at::kCPU));
  pool.release(slab_);
  slab_ = nullptr;
}

void UnitBuffer::make_local_gradient(SlabPool& pool) {
  if (local_gradient_.defined()) return;
  if (!sharded()) {
    local_gradient_ = gradient();
    return;
  }
  const int64_t elements = gathered_.size(0);
  gradient_slab_ = pool.acquire(elements * bytes_of(options_.master));
  local_gradient_ = at::from_blob(gradient_slab_, {elements}, at::TensorOptions(options_.master));
  local_gradient_.zero_();
}

void UnitBuffer::add_gradient(size_t param, const at::Tensor& gradient, SlabPool& pool) {
  LOOM_CHECK(options_.trainable, unit_, ": a gradient for frozen ", params_.at(param).name);
  if (fault(Fault::tied_overwrites) && contributed_[param]) return;
  contributed_[param] = true;
  make_local_gradient(pool);
  shaped(local_gradient_, params_[param]).add_(gradient);
}

void UnitBuffer::reduce_gradient(SlabPool& pool) {
  if (sharded()) {
    const bool contributes = local_gradient_.defined();
    make_local_gradient(pool);
    if (!contributes && fault(Fault::empty_rank_garbage)) local_gradient_.fill_(0.01);
    sharding_.comm->reduce_scatter_add(unit_ + ": gradients", sharding_.shard, local_gradient_, gradient());
    pool.release(gradient_slab_);
    gradient_slab_ = nullptr;
  }
  local_gradient_ = at::Tensor();
  std::fill(contributed_.begin(), contributed_.end(), false);
}

void UnitBuffer::finish_gradient() {
  if (!options_.trainable || sharding_.replicate.size() < 2 || fault(Fault::missing_replica_sum)) return;
  sharding_.comm->all_reduce(unit_ + ": gradients over replicas", sharding_.replicate, gradient());
}

}  // namespace loom
