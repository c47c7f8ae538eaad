// Components that the recipe says nothing about lie as ComponentLayout says by default.
#include "core/step/world_layout.h"

namespace loom {
namespace {

ComponentLayout find(const std::map<std::string, ComponentLayout>& layouts, const std::string& modality) {
  const auto found = layouts.find(modality);
  return found == layouts.end() ? ComponentLayout{} : found->second;
}

}  // namespace

ComponentLayout WorldLayout::encoder(const std::string& modality) const { return find(encoders, modality); }

ComponentLayout WorldLayout::connector(const std::string& modality) const { return find(connectors, modality); }

int WorldLayout::copies(const std::string& component) const {
  const size_t dot = component.find('.');
  const std::string modality = dot == std::string::npos ? "" : component.substr(dot + 1);
  const ComponentLayout layout = modality.empty()                    ? backbone
                                 : component.starts_with("encoders") ? encoder(modality)
                                                                     : connector(modality);
  return layout.shard == 0 ? 1 : world / layout.shard;
}

}  // namespace loom
