// Key functions and defaults of the interfaces that plugins implement.
#include "core/model/component.h"

#include "core/model/step_observer.h"

namespace loom {

Component::~Component() = default;
StepObserver::~StepObserver() = default;
Encoder::~Encoder() = default;
Connector::~Connector() = default;
Backbone::~Backbone() = default;

Tensor Encoder::show(const Tensor& /*rows*/, const ItemMeta& /*meta*/) const { return {}; }

ItemLayout Encoder::layout(const ItemMeta& meta) const { return whole_item(meta.tokens); }

void Component::end_step(StateTable& /*states*/) {}

int64_t Connector::merge() const { return 1; }

std::vector<BridgeTarget> Connector::targets(const BridgeTarget& usual) const { return {usual}; }

double Backbone::cost(int64_t tokens) const { return static_cast<double>(tokens); }

BridgeTarget Backbone::bridge_target() const { return {}; }

}  // namespace loom
