#include "core/model/registry.h"

#include "core/base/error.h"

namespace loom {

const char* kind_name(ComponentKind kind) {
  switch (kind) {
    case ComponentKind::encoder:
      return "encoder";
    case ComponentKind::connector:
      return "connector";
    case ComponentKind::backbone:
      return "backbone";
  }
  return "component";
}

void Registry::add(ComponentSpec spec, std::string owner) {
  const bool has_factory = (spec.kind == ComponentKind::encoder && spec.encoder) ||
                           (spec.kind == ComponentKind::connector && spec.connector) ||
                           (spec.kind == ComponentKind::backbone && spec.backbone);
  if (!has_factory)
    throw PluginError(concat(owner, ": ", kind_name(spec.kind), " '", spec.name, "' has no factory of its kind"));
  const std::pair<int, std::string> key{static_cast<int>(spec.kind), spec.name};
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    throw PluginError(concat(kind_name(spec.kind), " '", spec.name, "' is provided by both ", found->second.owner,
                             " and ", owner, "; keep one or give a path in the recipe"));
  }
  entries_.emplace(key, Entry{std::move(spec), std::move(owner)});
}

const ComponentSpec* Registry::find(ComponentKind kind, std::string_view name) const {
  const auto found = entries_.find(std::pair<int, std::string>{static_cast<int>(kind), std::string(name)});
  return found == entries_.end() ? nullptr : &found->second.spec;
}

std::vector<std::string> Registry::names(ComponentKind kind) const {
  std::vector<std::string> out;
  for (const auto& [key, entry] : entries_) {
    if (key.first == static_cast<int>(kind)) out.push_back(key.second);
  }
  return out;
}

std::string Registry::owner(ComponentKind kind, std::string_view name) const {
  const auto found = entries_.find(std::pair<int, std::string>{static_cast<int>(kind), std::string(name)});
  return found == entries_.end() ? std::string() : found->second.owner;
}

}  // namespace loom
