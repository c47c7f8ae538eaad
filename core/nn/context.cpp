// What a unit context answers without asking other ranks: parameters, states, partitions, dropout, kept values.
// Services that mix rows are in attention.cpp and services.cpp.
#include "core/nn/context.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/upload.h"
#include "core/comm/communicator.h"
#include "core/nn/substitute.h"

namespace loom {
namespace {

void check_rows(const char* service, const Tensor& x, const Segments& segments, std::string_view partition) {
  if (x.dim() == 2 && x.size(0) == segments.rows()) return;
  throw PluginError(concat(service, ": the tensor has shape ", x.sizes(), ", partition '", partition, "' has ",
                           segments.rows(), " rows; expected [rows, width]"));
}

}  // namespace

const Tensor& Streams::operator[](std::string_view name) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  std::string have;
  for (const auto& [key, value] : values_) have += (have.empty() ? "" : ", ") + key;
  throw PluginError(concat("no stream '", name, "' in this unit; it has: ", have));
}

const ParamDecl& UnitContext::declaration(const Param& param) const {
  if (!param.declared())
    throw PluginError(concat(state_.declarations->component, ": a parameter is read that was never declared"));
  return state_.declarations->params.at(static_cast<size_t>(param.index()));
}

Tensor UnitContext::operator[](const Param& param) const {
  const Declarations& declarations = *state_.declarations;
  const ParamDecl& decl = declaration(param);
  const Tensor& bound = state_.bound->at(param.index());
  const bool reads = std::find(decl.users.begin(), decl.users.end(), state_.unit) != decl.users.end();
  if (!reads) {
    throw PluginError(concat(decl.name, ": unit '", declarations.units.at(state_.unit).name,
                             "' reads it without having declared it; ", "call use() on the declarer of that unit"));
  }
  LOOM_CHECK(bound.defined(), decl.name, " is not bound");
  return bound;
}

Weight UnitContext::weight(const Param& param) const {
  if (!param.declared()) return {};
  Weight weight{(*this)[param]};
  if (state_.sinks != nullptr) weight.sink = (*state_.sinks)[static_cast<size_t>(param.index())];
  return weight;
}

const UnitDecl& UnitContext::unit() const { return state_.declarations->units.at(static_cast<size_t>(state_.unit)); }

std::string UnitContext::what(const char* service) const {
  return concat(state_.declarations->component, ".", unit().name, ": ", service);
}

void UnitContext::need(Mixes least, const char* service) const {
  const Mixes declared = unit().mixes;
  if (declared >= least) return;
  static constexpr const char* kNames[] = {"", "none", "halo", "attention", "whole"};
  throw PluginError(concat("unit '", unit().name, "' uses ctx.", service, " but declares that it mixes '",
                           kNames[static_cast<int>(declared)], "'; declare Mixes::", kNames[static_cast<int>(least)]));
}

void UnitContext::kept_too_little() {
  throw InternalError("the recomputation of a unit asks for more kept values than its first run made");
}

int UnitContext::rank() const { return state_.comm != nullptr ? state_.comm->rank() : 0; }

Tensor UnitContext::operator[](const State& state) const {
  LOOM_CHECK(state_.states != nullptr, "a state is read where there is none");
  if (!state.declared())
    throw PluginError(concat(state_.declarations->component, ": a state is read that was never declared"));
  return state_.states->value(state);
}

void UnitContext::contribute(const State& state, const Tensor& value) {
  if (!training() || state_.recomputing || state_.states == nullptr) return;
  state_.states->contribute(state.index(), value);
}

bool UnitContext::has_partition(std::string_view partition) const {
  return state_.partitions->find(partition) != state_.partitions->end();
}

const Segments& UnitContext::segments(std::string_view partition) const {
  const auto found = state_.partitions->find(partition);
  if (found != state_.partitions->end()) return found->second;
  std::string have;
  for (const auto& [key, value] : *state_.partitions) have += (have.empty() ? "'" : ", '") + key + "'";
  throw PluginError(concat("no partition '", partition, "' in this layout; it has: ", have));
}

Tensor UnitContext::positions(std::string_view partition) const { return positions(segments(partition)); }

Tensor UnitContext::positions(const Segments& s) const {
  const Tensor host = at::tensor(at::ArrayRef<int64_t>(s.positions), at::kLong).view({s.rows(), s.position_axes});
  return upload(host, state_.device);
}

Tensor UnitContext::dropout(const Tensor& x, double p, Site site, std::string_view partition) const {
  if (p <= 0 || !training()) return x;
  if (p >= 1) throw PluginError(concat("dropout: p must be below 1, found ", p));
  const Segments& s = segments(partition);
  check_rows("dropout", x, s, partition);
  const int64_t width = x.size(1);
  const at::TensorOptions memory = x.options().dtype(at::kFloat);
  const Tensor mask = at::empty({s.rows(), width}, x.is_meta() ? memory : memory.device(at::kCPU));
  if (!mask.is_meta()) draw_mask(mask.mutable_data_ptr<float>(), s, width, p, site);
  return x * upload(mask, x.device()).to(x.scalar_type());
}

// In the order of rows: 0 with probability p, else 1 / (1 - p).
void UnitContext::draw_mask(float* out, const Segments& s, int64_t width, double p, Site site) const {
  const auto threshold = static_cast<uint32_t>(p * 4294967296.0);
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  for (int64_t i = 0; i < s.count(); ++i) {
    const SegmentKey& key = s.keys[i];
    const Philox random(
        {state_.seed, Purpose::dropout, site.id, static_cast<uint64_t>(state_.step), key.sample, key.occurrence});
    uint64_t index = static_cast<uint64_t>(key.first_row * width);
    const uint64_t end = index + static_cast<uint64_t>(s.length(i) * width);
    while (index < end) {
      const auto words = random.block(index >> 2);
      do *out++ = words[index & 3] < threshold ? 0.0F : scale;
      while ((++index & 3) != 0 && index < end);
    }
  }
}

uint64_t UnitContext::seed_of(Site site, int64_t segment, std::string_view partition) const {
  const SegmentKey& key = segments(partition).keys.at(segment);
  const Philox random(
      {state_.seed, Purpose::noise, site.id, static_cast<uint64_t>(state_.step), key.sample, key.occurrence});
  const auto words = random.block(static_cast<uint64_t>(key.first_row));
  return (static_cast<uint64_t>(words[0]) << 32) | words[1];
}

void UnitContext::loss(std::string_view name, const Tensor& sum, Denominator denominator) {
  if (sum.dim() != 0)
    throw PluginError(concat("interior loss '", name, "' must be a scalar sum, found shape ", sum.sizes()));
  if (state_.losses != nullptr) state_.losses->push_back({std::string(name), sum, denominator});
}

Tensor UnitContext::keep(const Tensor& t) {
  if (state_.kept == nullptr) return t;
  if (!state_.recomputing) {
    state_.kept->tensors.push_back(t.detach());
    return t;
  }
  return substitute(t, next(state_.kept->tensors, next_kept_tensor_));
}

}  // namespace loom
