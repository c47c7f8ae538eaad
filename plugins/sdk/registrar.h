#pragma once
// What a plugin's register function receives. It only adds specs; anything thrown becomes a PluginError naming the
// plugin.
#include <string>
#include <utility>

#include "core/model/component_spec.h"
#include "core/model/registry.h"

namespace loom {

class Registrar {
 public:
  Registrar(Registry& registry, std::string owner) : registry_(&registry), owner_(std::move(owner)) {}
  void add(ComponentSpec spec) { registry_->add(std::move(spec), owner_); }

 private:
  Registry* registry_;
  std::string owner_;
};

}  // namespace loom
