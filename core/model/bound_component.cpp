// From declarations to storage. Trainable and frozen parameters of a unit go to buffers of their own, so that frozen
// ones have neither gradient nor optimizer state.
#include "core/model/bound_component.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/base/parallel.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/mesh/box.h"
#include "core/reshard/redistribute.h"

namespace loom {
namespace {

bool is_frozen(const std::string& name, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (glob_match(pattern, name) || name.rfind(pattern + ".", 0) == 0) return true;
  }
  return false;
}

template <class Scalar>
void fill(Scalar* out, int64_t first, int64_t n, const Init& init, const Philox& random) {
  constexpr int64_t kChunk = 1024;
  loom::parallel_for(0, n, 16 * kChunk, [&](int64_t begin, int64_t end) {
    double numbers[kChunk];
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t count = std::min(kChunk, end - at);
      const auto index = static_cast<uint64_t>(first + at);
      if (init.kind == Init::Kind::normal) random.normals(index, numbers, count);
      if (init.kind == Init::Kind::uniform) random.uniforms(index, numbers, count);
      for (int64_t i = 0; i < count; ++i) {
        double value = init.scale;
        if (init.kind == Init::Kind::normal) value *= numbers[i];
        if (init.kind == Init::Kind::uniform) value *= 2 * numbers[i] - 1;
        out[at + i] = static_cast<Scalar>(value);
      }
    }
  });
}

// Dense, in order of rows.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) out[d - 1] = out[d] * shape[d];
  return out;
}

// The member's part of a split parameter.
void take_part(BufferEntry& entry, const ParamDecl& decl, const TensorGroup& member) {
  entry.parts = split_boxes(decl, member);
  entry.cut = decl.split == Split::row ? 1 : 0;
  const auto cut = static_cast<size_t>(entry.cut);
  entry.shape[cut] = entry.numel = 0;
  for (const Box& part : entry.parts) {
    entry.shape[cut] += part.size[cut];
    entry.numel += part.numel();
  }
}

}  // namespace

// Autograd may call from a thread of its own, so all that it needs hangs on the component.
class BoundComponent::ParamSink final : public GradientSink {
 public:
  ParamSink(BoundComponent& component, Place place) : component_(component), place_(place) {}

  GradientTarget open() override {
    LOOM_CHECK(component_.sink_pool_ != nullptr, place_.buffer->params()[place_.entry].name,
               ": a gradient is added outside of the backward of its unit");
    GradientPlace place = place_.buffer->open_gradient(place_.entry, *component_.sink_pool_);
    return {std::move(place.sum), place.fresh};
  }

 private:
  BoundComponent& component_;
  Place place_;
};

BoundComponent::~BoundComponent() = default;

BoundComponent::BoundComponent(std::shared_ptr<Component> component, Declarations declarations, BindOptions options)
    : component_(std::move(component)),
      declarations_(std::move(declarations)),
      options_(std::move(options)),
      states_(declarations_.states, options_.device),
      comm_(options_.comm != nullptr ? options_.comm : &alone()) {
  if (declarations_.units.empty()) throw PluginError(concat(name(), ": declares no unit"));
  check_groups();
  places_.resize(declarations_.params.size());
  bound_.resize(declarations_.params.size());
  for (int unit = 0; unit < units(); ++unit) {
    for (const bool split : {false, true}) {
      for (const bool trainable : {true, false}) add_buffer(unit, trainable, split);
    }
  }
  sinks_.resize(places_.size());
  for (size_t p = 0; p < places_.size() && options_.master == options_.compute; ++p) {
    if (!places_[p].buffer->trainable()) continue;
    owned_sinks_.push_back(std::make_unique<ParamSink>(*this, places_[p]));
    sinks_[p] = owned_sinks_.back().get();
  }
  for (const UnitDecl& unit : declarations_.units) {
    std::vector<UnitBuffer*>& reads = reads_.emplace_back();
    for (const int param : unit.params) {
      UnitBuffer* buffer = places_[param].buffer;
      if (std::find(reads.begin(), reads.end(), buffer) == reads.end()) reads.push_back(buffer);
    }
  }
  // In backward order the lowest unit that reads a trainable parameter is the last one to contribute to its buffer.
  reduces_.resize(declarations_.units.size());
  for (const auto& buffer : buffers_) {
    if (!buffer->trainable()) continue;
    int last = units();
    for (const BufferEntry& param : buffer->params()) {
      for (const int user : declarations_.params[static_cast<size_t>(param.param)].users) last = std::min(last, user);
    }
    reduces_[static_cast<size_t>(last)].push_back(buffer.get());
  }
}

void BoundComponent::check_groups() {
  const int world = comm_->world(), tp = options_.tp;
  if (tp < 1 || world % tp != 0) {
    throw UserError(concat(name(), ": layers cannot be split over ", tp, " of ", world,
                           " ranks; the number must divide the world"));
  }
  tensor_ = {tp, comm_->rank() % tp};
  if (options_.shard == 0) options_.shard = world / tp;
  if (options_.shard < 1 || world / tp % options_.shard != 0) {
    throw UserError(concat(name(), ": weights cannot be sharded over ", options_.shard, " of ", world / tp, " ranks",
                           tp > 1 ? concat(" (", world, " with tp ", tp, ")") : "", "; the number must divide ",
                           tp > 1 ? "them" : "the world"));
  }
  if (tp == 1) return;
  const SplitLimit limit = split_limit(declarations_);
  if (limit.ranks == 0) throw UserError(concat(name(), ": no layer of it is split; tp must be 1"));
  if (tp > limit.ranks) {
    throw UserError(
        concat(name(), ": tp ", tp, " leaves ranks without a part of ", limit.param, "; at most ", limit.ranks));
  }
}

// Ranks are numbered with tp innermost. The parts of a split parameter are sharded and replicated among the ranks that
// hold the same part; what is not split, in the same shards, and replicated over tp too.
Sharding BoundComponent::sharding_of(bool split) const {
  const int tp = tensor_.ranks, column = comm_->rank() / tp, columns = comm_->world() / tp;
  Sharding out{comm_, {}, {}};
  for (const int other : block_group(column, columns, options_.shard)) out.shard.push_back(other * tp + tensor_.index);
  for (const int other : stride_group(column, columns, options_.shard)) {
    if (split || fault(Fault::missing_tp_sum)) {
      out.replicate.push_back(other * tp + tensor_.index);
    } else {
      for (int member = 0; member < tp; ++member) out.replicate.push_back(other * tp + member);
    }
  }
  return out;
}

BufferEntry BoundComponent::entry_of(size_t param) const {
  const ParamDecl& decl = declarations_.params[param];
  BufferEntry out{
      static_cast<int>(param), decl.name,       decl.shape, 0, decl.numel(), decl.decay, decl.adopted, decl.shape,
      whole_box(decl.shape),   decl.shard_block};
  if (is_split(param)) take_part(out, decl, tensor_);
  return out;
}

void BoundComponent::add_buffer(int unit, bool trainable, bool split) {
  std::vector<BufferEntry> entries;
  for (size_t p = 0; p < declarations_.params.size(); ++p) {
    const ParamDecl& decl = declarations_.params[p];
    if (decl.home_unit != unit || is_frozen(decl.name, options_.frozen) == trainable || is_split(p) != split) continue;
    entries.push_back(entry_of(p));
  }
  if (entries.empty()) return;
  const UnitBuffer::Options buffer{trainable,       options_.master,       options_.compute,       options_.always_slab,
                                   options_.device, options_.keep_weights, options_.keep_gradients};
  buffers_.push_back(
      std::make_unique<UnitBuffer>(concat(name(), ".", declarations_.units[static_cast<size_t>(unit)].name),
                                   std::move(entries), buffer, sharding_of(split)));
  for (size_t e = 0; e < buffers_.back()->params().size(); ++e) {
    const int param = buffers_.back()->params()[e].param;
    places_[param] = {buffers_.back().get(), e};
    bound_[param] = buffers_.back()->weight(e);
  }
}

bool BoundComponent::splits(int unit) const {
  if (tensor_group() == nullptr) return false;
  const std::vector<int>& params = declarations_.units[static_cast<size_t>(unit)].params;
  return std::any_of(params.begin(), params.end(), [&](int p) { return is_split(static_cast<size_t>(p)); });
}

void BoundComponent::hold_whole() {
  if (tensor_.ranks == 1) return;
  const int first = comm_->rank() - tensor_.index;
  std::vector<Tensor> whole = bound_;
  for (size_t p = 0; p < places_.size(); ++p) {
    if (!is_split(p)) continue;
    const ParamDecl& decl = declarations_.params[p];
    Layout source{decl.shape, {}}, destination{decl.shape, {}};
    for (int member = 0; member < tensor_.ranks; ++member) {
      BufferEntry theirs;
      theirs.shape = decl.shape;
      take_part(theirs, decl, {tensor_.ranks, member});
      const std::vector<int64_t> strides = strides_of(theirs.shape);
      const auto cut = static_cast<size_t>(theirs.cut);
      int64_t at = 0;
      for (const Box& part : theirs.parts) {
        source.boxes.push_back({first + member, part, at, strides});
        at += part.size[cut] * strides[cut];
      }
      destination.boxes.push_back({first + member, whole_box(decl.shape), 0, strides_of(decl.shape)});
    }
    const Route route = route_of(plan_transfers(source, destination), comm_->rank());
    whole[p] = at::empty(decl.shape, bound_[p].options());
    redistribute(*comm_, concat(decl.name, ": tp weights"), {{&route, bound_[p].detach(), whole[p], 1}});
  }
  whole_ = std::move(whole);
}

void BoundComponent::init_weights(uint64_t seed) {
  for (const auto& buffer : buffers_) {
    for (size_t e = 0; e < buffer->entries().size(); ++e) {
      const BufferEntry& entry = buffer->entries()[e];
      if (entry.adopted.defined()) continue;  // keeps the values its module was built with
      const Init& init = declarations_.params[entry.param].init;
      Tensor master = buffer->master_of(e);
      if (master.is_meta()) continue;
      // Drawn on the host, so that a seed gives the same weights on every device.
      const Tensor value = master.is_cpu() ? master : at::empty(master.sizes(), master.options().device(at::kCPU));
      const Philox random({seed, Purpose::init, hash_name(entry.name)});
      each_run(entry.box, entry.global_shape, [&](int64_t first, int64_t at, int64_t n) {
        if (value.scalar_type() == at::kDouble) {
          fill(value.data_ptr<double>() + at, first, n, init, random);
        } else {
          fill(value.data_ptr<float>() + at, first, n, init, random);
        }
      });
      if (!value.is_same(master)) master.copy_(value);
    }
    buffer->master_written();
  }
}

void BoundComponent::start_gather(int unit, SlabPool& pool) {
  for (UnitBuffer* buffer : reads_[unit]) buffer->start_gather(pool);
}

void BoundComponent::gather(int unit, SlabPool& pool) {
  for (UnitBuffer* buffer : reads_[unit]) buffer->gather(pool);
}

void BoundComponent::release(int unit, SlabPool& pool) {
  for (UnitBuffer* buffer : reads_[unit]) buffer->release(pool);
}

uint64_t BoundComponent::generation(int unit) const {
  uint64_t sum = 0;  // generations only grow, so equal sums mean equal generations
  for (const UnitBuffer* buffer : reads_[unit]) sum += buffer->generation();
  return sum;
}

std::vector<int> BoundComponent::trainable_params(int unit) const {
  std::vector<int> out;
  for (const int param : declarations_.units[unit].params) {
    if (places_[param].buffer->trainable()) out.push_back(param);
  }
  return out;
}

void BoundComponent::zero_gradients() {
  for (const auto& buffer : buffers_) {
    if (buffer->trainable()) buffer->zero_gradient();
  }
}

void BoundComponent::accumulate(int param, const Tensor& gradient, SlabPool& pool) {
  const Place& place = places_[param];
  place.buffer->add_gradient(place.entry, gradient, pool);
}

void BoundComponent::reduce_gradients(int unit, SlabPool& pool) {
  for (UnitBuffer* buffer : reduces_[unit]) {
    if (reducing_ != nullptr) reducing_->finish_reduce();  // at most one at a time holds memory
    buffer->reduce_gradient(pool);
    reducing_ = buffer;
  }
}

void BoundComponent::finish_gradients() {
  for (const auto& buffer : buffers_) {
    if (buffer->trainable()) buffer->finish_gradient();
  }
}

void BoundComponent::end_step() {
  if (states_.size() == 0) return;
  const RankGroup world = world_group(comm_->world());
  for (size_t s = 0; s < states_.size(); ++s) {
    const StateDecl& decl = declarations_.states[s];
    Tensor& sum = states_.contribution_at(s);
    if (decl.reduce == Reduce::sum) {
      comm_->all_reduce(decl.name, world, sum);
      continue;
    }
    const Tensor all = at::empty({static_cast<int64_t>(world.size()), sum.numel()}, sum.options());
    comm_->all_gather(decl.name, world, sum.reshape({-1}), all.view({-1})).wait();
    sum.copy_(all.amax(0).view(sum.sizes()));
  }
  if (!device().is_meta()) component_->end_step(states_);  // there are no values in a dry run
  states_.clear_contributions();
}

bool BoundComponent::trainable() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [](const auto& buffer) { return buffer->trainable(); });
}

bool BoundComponent::unit_differentiable(int unit, bool inputs_need_grad) const {
  return inputs_need_grad || !trainable_params(unit).empty();
}

int64_t BoundComponent::params_total() const {
  int64_t n = 0;
  for (const ParamDecl& decl : declarations_.params) n += decl.numel();
  return n;
}

int64_t BoundComponent::params_trainable() const {
  int64_t n = 0;
  for (size_t p = 0; p < places_.size(); ++p) n += places_[p].buffer->trainable() ? declarations_.params[p].numel() : 0;
  return n;
}

int64_t BoundComponent::largest_buffer_bytes() const {
  int64_t n = 0;
  for (const auto& buffer : buffers_) n = std::max(n, buffer->slab_bytes());
  return n;
}

}  // namespace loom
