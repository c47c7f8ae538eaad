// From declarations to storage. Trainable and frozen parameters of a unit go to buffers of their own, so that frozen
// ones have neither gradient nor optimizer state.
#include "core/model/bound_component.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/mesh/box.h"

namespace loom {
namespace {

bool is_frozen(const std::string& name, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (glob_match(pattern, name) || name.rfind(pattern + ".", 0) == 0) return true;
  }
  return false;
}

template <class Scalar>
void fill(Scalar* out, int64_t n, const Init& init, const Philox& random) {
  for (int64_t i = 0; i < n; ++i) {
    double value = init.scale;
    if (init.kind == Init::Kind::normal) value = init.scale * random.normal(i);
    if (init.kind == Init::Kind::uniform) value = init.scale * (2 * random.uniform(i) - 1);
    out[i] = static_cast<Scalar>(value);
  }
}

}  // namespace

BoundComponent::BoundComponent(std::shared_ptr<Component> component, Declarations declarations, BindOptions options)
    : component_(std::move(component)), declarations_(std::move(declarations)), options_(std::move(options)) {
  if (declarations_.units.empty()) throw PluginError(concat(name(), ": declares no unit"));
  places_.resize(declarations_.params.size());
  bound_.resize(declarations_.params.size());
  for (int unit = 0; unit < units(); ++unit) {
    for (const bool trainable : {true, false}) {
      std::vector<BufferEntry> entries;
      for (size_t p = 0; p < declarations_.params.size(); ++p) {
        const ParamDecl& decl = declarations_.params[p];
        if (decl.home_unit != unit || is_frozen(decl.name, options_.frozen) == trainable) continue;
        entries.push_back({static_cast<int>(p), decl.name, decl.shape, 0, decl.numel(), decl.decay, decl.adopted,
                           decl.shape, whole_box(decl.shape)});
      }
      if (entries.empty()) continue;
      UnitBuffer::Options buffer{trainable, options_.master, options_.compute, options_.always_slab};
      buffers_.push_back(std::make_unique<UnitBuffer>(concat(name(), ".", declarations_.units[unit].name),
                                                      std::move(entries), buffer));
      for (size_t e = 0; e < buffers_.back()->entries().size(); ++e) {
        const int param = buffers_.back()->entries()[e].param;
        places_[param] = {buffers_.back().get(), e};
        bound_[param] = buffers_.back()->weight(e);
      }
    }
  }
  for (const UnitDecl& unit : declarations_.units) {
    std::vector<UnitBuffer*>& reads = reads_.emplace_back();
    for (const int param : unit.params) {
      UnitBuffer* buffer = places_[param].buffer;
      if (std::find(reads.begin(), reads.end(), buffer) == reads.end()) reads.push_back(buffer);
    }
  }
}

void BoundComponent::init_weights(uint64_t seed) {
  for (const auto& buffer : buffers_) {
    for (size_t e = 0; e < buffer->entries().size(); ++e) {
      const BufferEntry& entry = buffer->entries()[e];
      if (entry.adopted.defined()) continue;  // keeps the values its module was built with
      const Init& init = declarations_.params[entry.param].init;
      Tensor value = buffer->master_of(e);
      const Philox random({seed, Purpose::init, hash_name(entry.name)});
      if (value.scalar_type() == at::kDouble) {
        fill(value.data_ptr<double>(), entry.numel, init, random);
      } else {
        fill(value.data_ptr<float>(), entry.numel, init, random);
      }
    }
    buffer->master_written();
  }
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

void BoundComponent::accumulate(int param, const Tensor& gradient) {
  const Place& place = places_[param];
  place.buffer->gradient_of(place.entry).add_(gradient);
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
  for (const auto& buffer : buffers_) n = std::max(n, buffer->gathered_bytes());
  return n;
}

}  // namespace loom
