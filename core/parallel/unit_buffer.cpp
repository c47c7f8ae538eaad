// One storage object per buffer lives as long as the buffer; its memory comes and goes. So tensors that autograd saved
// in forward are valid again after the weights were released and gathered anew, wherever the new slab lies.
#include "core/parallel/unit_buffer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {
namespace {

at::Tensor shaped(const at::Tensor& flat, const BufferEntry& entry) {
  return flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
}

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

// A flat tensor over memory that comes and goes; the storage object is the tensor's own.
at::Tensor without_memory(int64_t elements, at::ScalarType type, c10::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(elements * bytes_of(type)),
                       c10::DataPtr(nullptr, device), nullptr, false);
  at::Tensor out = at::empty({0}, at::TensorOptions(type).device(device));
  out.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  out.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  return out;
}

c10::DataPtr memory_of(const at::Tensor& slab) {
  return {slab.is_meta() ? nullptr : slab.mutable_data_ptr(), slab.device()};
}

// The first elements of a slab.
at::Tensor typed(const at::Tensor& slab, int64_t elements, at::ScalarType type) {
  return slab.narrow(0, 0, elements * bytes_of(type)).view(type);
}

// An existing module's own tensor becomes this weight. Tensors of unlike devices cannot be exchanged by set_data.
void rebind(at::Tensor adopted, const at::Tensor& weight) {
  if (adopted.device() == weight.device()) return adopted.set_data(weight);
  c10::TensorImpl* impl = adopted.unsafeGetTensorImpl();
  impl->set_storage_and_dtype(weight.storage(), weight.dtype());
  impl->set_sizes_and_strides(weight.sizes(), weight.strides(), weight.storage_offset());
  impl->_change_backend_component_keys(weight.device());
}

// A box of the parameter as this buffer holds it, in terms of the global tensor; in the order of elements.
std::vector<Box> global_boxes(const BufferEntry& param, const Box& box) {
  if (param.parts.empty()) return {box};
  const auto cut = static_cast<size_t>(param.cut);
  std::vector<Box> out;
  int64_t begin = 0;  // of the part within the buffer's parameter
  for (const Box& part : param.parts) {
    const int64_t from = std::max(begin, box.offset[cut]);
    const int64_t to = std::min(begin + part.size[cut], box.offset[cut] + box.size[cut]);
    if (from < to) {
      Box found = box;
      found.offset[cut] = part.offset[cut] + from - begin;
      found.size[cut] = to - from;
      out.push_back(std::move(found));
    }
    begin += part.size[cut];
  }
  return out;
}

int part_of(const Sharding& sharding) {
  return sharding.comm == nullptr || sharding.shard.empty() ? 0 : index_in(sharding.shard, sharding.comm->rank());
}

}  // namespace

UnitBuffer::UnitBuffer(std::string unit, std::vector<BufferEntry> params, Options options, Sharding sharding)
    : unit_(std::move(unit)), params_(std::move(params)), options_(options), sharding_(std::move(sharding)) {
  if (sharding_.shard.empty()) sharding_.shard = {0};
  for (BufferEntry& param : params_) {
    if (param.parts.empty()) param.global_shape = param.shape;
  }
  const int ranks = static_cast<int>(sharding_.shard.size()), part = part_of(sharding_);
  LOOM_CHECK(part >= 0, unit_, ": this rank is no member of the group that holds its weights");
  numel_ = place_params(params_, ranks, 64 / std::min(bytes_of(options.master), bytes_of(options.compute)));
  own_entries(part * numel_);
  counted_ = sharding_.replicate.size() < 2 || sharding_.replicate.front() == sharding_.comm->rank();
  contributed_.resize(params_.size());
  written_.resize(params_.size());
  in_place_ = ranks == 1 && options.master == options.compute && !options.always_slab;
  master_ = at::zeros({numel_}, at::TensorOptions(options.master).device(options.device));
  if (in_place_) {
    gathered_ = master_;
  } else {
    gathered_ = without_memory(numel_ * ranks, options.compute, options.device);
  }
  for (const BufferEntry& entry : entries_) {
    if (!entry.adopted.defined()) continue;
    at::Tensor box = entry.adopted.detach();
    for (size_t d = 0; d < entry.box.size.size(); ++d)
      box = box.narrow(static_cast<int64_t>(d), entry.box.offset[d], entry.box.size[d]);
    shaped(master_, entry).copy_(box);
  }
  for (const BufferEntry& param : params_) {
    at::Tensor weight = shaped(gathered_, param).detach();
    if (param.adopted.defined()) {
      rebind(param.adopted, weight);
      weight = param.adopted;
    }
    weights_.push_back(weight.requires_grad_(options.trainable));
  }
}

UnitBuffer::~UnitBuffer() = default;

// Boxes of every parameter that reaches into [first, first + numel_).
void UnitBuffer::own_entries(int64_t first) {
  for (const BufferEntry& param : params_) {
    const int64_t begin = std::max(param.offset, first), end = std::min(param.offset + param.numel, first + numel_);
    if (begin >= end) continue;
    int64_t at = begin - first;
    for (const Box& held : boxes_of_range(param.shape, begin - param.offset, end - param.offset)) {
      for (Box& box : global_boxes(param, held)) {
        BufferEntry entry = param;
        entry.box = std::move(box);
        entry.shape = entry.box.size;
        entry.offset = at;
        entry.numel = entry.box.numel();
        at += entry.numel;
        entries_.push_back(std::move(entry));
      }
    }
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
  const int64_t weights = in_place_ || options_.keep_weights ? 0 : gathered_bytes();
  if (!sharded() || !options_.trainable || options_.keep_gradients) return weights;
  return std::max(weights, gathered_bytes() / bytes_of(options_.compute) * bytes_of(options_.master));
}

at::Tensor& UnitBuffer::gradient() {
  if (!options_.trainable) return gradient_;
  finish_reduce();
  if (sharded()) {
    if (!gradient_.defined()) {
      gradient_ = at::zeros_like(master_);
    } else if (fresh_) {
      gradient_.zero_();
    }
    fresh_ = false;
    return gradient_;
  }
  if (!gradient_.defined()) make_gradient();
  if (!all_written_) clear_unwritten(gradient_);
  all_written_ = true;
  return gradient_;
}

at::Tensor UnitBuffer::master_of(size_t entry) const { return shaped(master_, entries_.at(entry)); }

at::Tensor UnitBuffer::gradient_of(size_t entry) { return shaped(gradient(), entries_.at(entry)); }

void UnitBuffer::begin_gather(SlabPool& pool) {
  if (!slab_.defined()) {
    slab_ = options_.keep_weights ? at::empty({gathered_bytes()}, at::TensorOptions(at::kByte).device(options_.device))
                                  : pool.acquire(gathered_bytes());
    gathered_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(memory_of(slab_));
  }
  filled_generation_ = generation_;
  // Filled through the slab, so that version counters of saved tensors do not move.
  filling_ = typed(slab_, gathered_.size(0), options_.compute);
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
  if (in_place_ || users_ > 0 || started_ || current()) return;
  begin_gather(pool);
}

void UnitBuffer::gather(SlabPool& pool) {
  if (users_++ > 0 || in_place_) return;
  if (started_ && filled_generation_ != generation_) {  // started before the weights were written
    pending_.wait();
    started_ = false;
  }
  if (!started_ && current()) return;
  if (!started_) begin_gather(pool);
  pending_.wait();
  started_ = false;
  filling_ = at::Tensor();
}

void UnitBuffer::release(SlabPool& pool) {
  LOOM_CHECK(users_ > 0, unit_, ": released more often than gathered");
  if (--users_ > 0 || in_place_ || options_.keep_weights) return;
  gathered_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, options_.device));
  pool.release(std::exchange(slab_, {}));
}

void UnitBuffer::make_gradient() {
  gradient_ = at::empty_like(master_);
  clear_padding(gradient_);
}

void UnitBuffer::make_kept_gradient() {
  local_gradient_ = at::empty({gathered_.size(0)}, master_.options());
  clear_padding(local_gradient_);
}

void UnitBuffer::make_local_gradient(SlabPool& pool) {
  if (local_gradient_.defined()) return;
  if (!sharded()) {
    if (!gradient_.defined()) make_gradient();
    local_gradient_ = gradient_;
    return;
  }
  if (options_.keep_gradients) return make_kept_gradient();
  const int64_t elements = gathered_.size(0);
  gradient_slab_ = pool.acquire(elements * bytes_of(options_.master));
  local_gradient_ = typed(gradient_slab_, elements, options_.master);
  clear_padding(local_gradient_);
}

// What belongs to no parameter: it is added over ranks and updated like everything else, and stays zero.
void UnitBuffer::clear_padding(const at::Tensor& flat) const {
  int64_t end = 0;
  for (const BufferEntry& param : params_) {
    if (param.offset > end) flat.narrow(0, end, param.offset - end).zero_();
    end = param.offset + param.numel;
  }
  if (flat.size(0) > end) flat.narrow(0, end, flat.size(0) - end).zero_();
}

void UnitBuffer::clear_unwritten(const at::Tensor& flat) {
  for (size_t p = 0; p < params_.size(); ++p) {
    if (!written_[p]) shaped(flat, params_[p]).zero_();
    written_[p] = true;
  }
}

void UnitBuffer::zero_gradient() {
  fresh_ = true;
  all_written_ = false;
  std::fill(written_.begin(), written_.end(), false);
}

GradientPlace UnitBuffer::open_gradient(size_t param, SlabPool& pool) {
  LOOM_CHECK(options_.trainable, unit_, ": a gradient for frozen ", params_.at(param).name);
  make_local_gradient(pool);
  bool fresh = !written_[param];
  if (fault(Fault::tied_overwrites) && contributed_[param]) fresh = true;
  written_[param] = contributed_[param] = true;
  return {shaped(local_gradient_, params_[param]), fresh};
}

void UnitBuffer::add_gradient(size_t param, const at::Tensor& gradient, SlabPool& pool) {
  const GradientPlace place = open_gradient(param, pool);
  if (!place.fresh) {
    // add_ would widen on CPU by itself, unseen by a dry run.
    place.sum.add_(gradient.to(options_.master));
  } else if (gradient.is_contiguous()) {
    place.sum.copy_(gradient);
  } else {
    place.sum.zero_().add_(gradient.to(options_.master));  // a copy that transposes allocates, unseen by a dry run
  }
}

void UnitBuffer::reduce_over_shard(bool contributes) {
  clear_unwritten(local_gradient_);
  std::fill(written_.begin(), written_.end(), false);
  if (!contributes && fault(Fault::empty_rank_garbage)) local_gradient_.fill_(0.01);
  reducing_ = sharding_.comm->reduce_scatter_add(unit_ + ": gradients", sharding_.shard, local_gradient_, gradient());
  reduced_ = std::exchange(local_gradient_, {});
}

void UnitBuffer::finish_reduce() {
  if (!reduced_.defined()) return;
  reducing_.wait();
  reduced_ = at::Tensor();
  if (reduced_slab_.defined()) reduced_pool_->release(std::exchange(reduced_slab_, {}));
}

void UnitBuffer::reduce_gradient(SlabPool& pool) {
  std::fill(contributed_.begin(), contributed_.end(), false);
  if (sharded() && options_.keep_gradients) return;
  if (sharded()) {
    const bool contributes = local_gradient_.defined();
    make_local_gradient(pool);
    reduce_over_shard(contributes);
    reduced_slab_ = std::exchange(gradient_slab_, {});
    reduced_pool_ = &pool;
  }
  local_gradient_ = at::Tensor();
}

void UnitBuffer::finish_gradient() {
  if (!options_.trainable) return;
  if (sharded() && options_.keep_gradients) {
    const bool contributes = local_gradient_.defined();
    if (!contributes) make_kept_gradient();
    reduce_over_shard(contributes);
  }
  finish_reduce();
  if (sharding_.replicate.size() < 2 || fault(Fault::missing_replica_sum)) return;
  sharding_.comm->all_reduce(unit_ + ": gradients over replicas", sharding_.replicate, gradient());
}

}  // namespace loom
