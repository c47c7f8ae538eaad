// Components that the recipe says nothing about lie as ComponentLayout says by default.
#include "core/step/world_layout.h"

#include <algorithm>

namespace loom {
namespace {

ComponentLayout find(const std::map<std::string, ComponentLayout>& layouts, const std::string& modality) {
  const auto found = layouts.find(modality);
  return found == layouts.end() ? ComponentLayout{} : found->second;
}

}  // namespace

int balance_group(const Balance& balance, int world) {
  if (balance.group > 0) return balance.group;
  int group = std::min(world, Balance::kMostRanks);
  while (world % group != 0) --group;
  return group;
}

ComponentLayout WorldLayout::encoder(const std::string& modality) const { return find(encoders, modality); }

ComponentLayout WorldLayout::connector(const std::string& modality) const { return find(connectors, modality); }

}  // namespace loom
