// A model of parts: what it checks when it is put together, and what it answers about them. Microbatches run in
// multimodal_pass.cpp.
#include "core/model/multimodal_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/comm/communicator.h"
#include "core/model/model_pass.h"

namespace loom {
namespace {

int64_t slab_bytes(const ModelParts& parts) {
  int64_t bytes = parts.backbone->largest_buffer_bytes();
  for (const auto& [name, part] : parts.encoders) bytes = std::max(bytes, part->largest_buffer_bytes());
  for (const auto& [name, part] : parts.connectors) bytes = std::max(bytes, part->largest_buffer_bytes());
  return bytes;
}

const StreamDecl* find_stream(const std::vector<StreamDecl>& streams, std::string_view name) {
  const auto found = std::find_if(streams.begin(), streams.end(), [&](const auto& s) { return s.name == name; });
  return found == streams.end() ? nullptr : &*found;
}

// A target that does not exist is named before any data moves.
void check_targets(const std::string& modality, const BoundComponent& connector, const BoundComponent& backbone,
                   const std::vector<BridgeTarget>& targets) {
  for (const BridgeTarget& target : targets) {
    const std::string who = concat("connectors.", modality, " (", connector.options().origin, "): its target ");
    if (target.unit < 0 || target.unit >= backbone.units())
      throw UserError(concat(who, "is unit ", target.unit, ", the backbone has ", backbone.units(), " units"));
    if (output_of(connector, target.embeddings) == nullptr)
      throw PluginError(concat(who, "takes stream '", target.embeddings, "', which no unit of it writes"));
    if (input_of(backbone, target.stream) == nullptr)
      throw UserError(concat(who, "is stream '", target.stream, "', which no unit of the backbone reads"));
  }
}

}  // namespace

const StreamDecl* output_of(const BoundComponent& component, std::string_view name) {
  const StreamDecl* found = nullptr;
  for (const UnitDecl& unit : component.declarations().units) {
    if (const StreamDecl* stream = find_stream(unit.outputs, name)) found = stream;
  }
  return found;
}

const StreamDecl* input_of(const BoundComponent& component, std::string_view name) {
  for (const UnitDecl& unit : component.declarations().units) {
    if (const StreamDecl* stream = find_stream(unit.inputs, name)) return stream;
  }
  return nullptr;
}

bool runs_at_slots(const ConnectorWidths& widths, ConnectorSide side) {
  if (widths.whole || side == ConnectorSide::encoder) return false;
  return side == ConnectorSide::backbone || widths.features < widths.embeddings;
}

MultimodalModel::~MultimodalModel() = default;

std::vector<StreamDecl> external_inputs(const BoundComponent& component) {
  std::vector<StreamDecl> out;
  std::set<std::string> known;
  for (const UnitDecl& unit : component.declarations().units) {
    for (const StreamDecl& input : unit.inputs) {
      if (known.insert(input.name).second) out.push_back(input);
    }
    for (const StreamDecl& output : unit.outputs) known.insert(output.name);
  }
  return out;
}

Tensor zero_rows(int64_t rows, int64_t width, const BoundComponent& component) {
  return at::zeros({rows, width}, at::TensorOptions(component.options().compute).device(component.device()));
}

MultimodalModel::MultimodalModel(ModelParts parts, uint64_t seed)
    : parts_(std::move(parts)),
      seed_(seed),
      pool_(slab_bytes(parts_), parts_.backbone->device()),
      open_(std::make_unique<OpenPasses>()) {
  std::set<std::string> owned;
  for (const auto& [modality, encoder] : parts_.encoders) {
    if (parts_.connectors.find(modality) == parts_.connectors.end()) {
      throw UserError(concat("encoders.", modality, " has no connector; add connectors.", modality));
    }
    modalities_.push_back(modality);
    const BoundComponent& connector = *parts_.connectors.at(modality);
    std::vector<BridgeTarget>& targets = targets_[modality];
    targets = dynamic_cast<Connector&>(parts_.connectors.at(modality)->component()).targets(backbone().bridge_target());
    check_targets(modality, connector, *parts_.backbone, targets);
    const std::string stream = bridge_stream(modality);
    if (!stream.empty() && !owned.insert(stream).second)
      throw UserError(
          concat("connectors.", modality, ": another connector is the backbone's stream '", stream, "' already"));
  }
}

std::vector<BoundComponent*> MultimodalModel::components() {
  std::vector<BoundComponent*> out;
  for (const auto& [name, part] : parts_.encoders) out.push_back(part.get());
  for (const auto& [name, part] : parts_.connectors) out.push_back(part.get());
  out.push_back(parts_.backbone.get());
  return out;
}

std::vector<UnitBuffer*> MultimodalModel::buffers() {
  std::vector<UnitBuffer*> out;
  for (BoundComponent* component : components()) {
    for (const auto& buffer : component->buffers()) out.push_back(buffer.get());
  }
  return out;
}

void MultimodalModel::init_weights(uint64_t seed) {
  for (BoundComponent* component : components()) component->init_weights(seed);
}

void MultimodalModel::zero_gradients() {
  open_->branches.clear();  // of a step that was not ended
  for (BoundComponent* component : components()) component->zero_gradients();
}

void MultimodalModel::finish_gradients() {
  for (BoundComponent* component : components()) component->finish_gradients();
}

void MultimodalModel::end_step() {
  for (BoundComponent* component : components()) component->end_step();
}

void MultimodalModel::hold_weights() {
  for (BoundComponent* component : components()) {
    for (int unit = 0; unit < component->units(); ++unit) component->gather(unit, pool_);
    component->hold_whole();
  }
}

void MultimodalModel::release_weights() {
  for (BoundComponent* component : components()) {
    component->drop_whole();
    for (int unit = 0; unit < component->units(); ++unit) component->release(unit, pool_);
  }
}

Communicator& MultimodalModel::comm() const { return parts_.backbone->comm(); }

void MultimodalModel::weights_written() {
  for (UnitBuffer* buffer : buffers()) buffer->master_written();
}

Encoder& MultimodalModel::encoder(const std::string& modality) {
  const auto found = parts_.encoders.find(modality);
  if (found == parts_.encoders.end())
    throw UserError(concat("the data has items of modality '", modality, "', the model has no such encoder"));
  return dynamic_cast<Encoder&>(found->second->component());
}

const Encoder& MultimodalModel::encoder(const std::string& modality) const {
  return const_cast<MultimodalModel*>(this)->encoder(modality);
}

int64_t MultimodalModel::merge(const std::string& modality) const {
  return dynamic_cast<Connector&>(parts_.connectors.at(modality)->component()).merge();
}

std::string MultimodalModel::bridge_stream(const std::string& modality) const {
  for (const BridgeTarget& target : targets_.at(modality)) {
    if (target.mode == BridgeMode::stream) return target.stream;
  }
  return "";
}

std::string MultimodalModel::features_partition(const std::string& modality) const {
  const StreamDecl* features = output_of(*parts_.encoders.at(modality), "features");
  return features != nullptr ? features->partition : "";
}

bool MultimodalModel::divisible(const std::string& modality) const {
  return whole_unit(parts_.encoders.at(modality)->declarations()) == nullptr &&
         whole_unit(parts_.connectors.at(modality)->declarations()) == nullptr;
}

ConnectorWidths MultimodalModel::connector_widths(const std::string& modality) const {
  const BoundComponent& connector = *parts_.connectors.at(modality);
  ConnectorWidths out;
  for (const StreamDecl& input : external_inputs(connector)) {
    if (output_of(*parts_.encoders.at(modality), input.name) != nullptr) out.features += input.width * merge(modality);
  }
  for (const BridgeTarget& target : targets_.at(modality))
    out.embeddings += output_of(connector, target.embeddings)->width;
  out.whole = whole_unit(connector.declarations()) != nullptr;
  return out;
}

Backbone& MultimodalModel::backbone() { return dynamic_cast<Backbone&>(parts_.backbone->component()); }

}  // namespace loom
