// The rule by which collectives are named, in one place.
#include "core/comm/traffic.h"

namespace loom {
namespace {

constexpr std::string_view kBridge = "bridge: ";

// "encoders.image" of "encoders.image.blocks.3", "backbone" of "backbone.head"; "" when no component begins so.
std::string_view component_of(std::string_view name) {
  for (const std::string_view group : {"encoders.", "connectors."}) {
    if (!name.starts_with(group)) continue;
    return name.substr(0, name.find_first_of(". :", group.size()));
  }
  constexpr std::string_view kBackbone = "backbone";
  const bool backbone = name.starts_with(kBackbone) && (name.size() == kBackbone.size() ||
                                                        name[kBackbone.size()] == '.' || name[kBackbone.size()] == ':');
  return backbone ? kBackbone : std::string_view();
}

}  // namespace

const char* comm_kind_name(CommKind kind) {
  switch (kind) {
    case CommKind::all_gather:
      return "all_gather";
    case CommKind::reduce_scatter:
      return "reduce_scatter";
    case CommKind::all_reduce:
      return "all_reduce";
    case CommKind::exchange:
      return "exchange";
    case CommKind::barrier:
      return "barrier";
    case CommKind::broadcast:
      return "broadcast";
  }
  return "unknown";
}

const char* comm_axis_name(CommAxis axis) {
  switch (axis) {
    case CommAxis::world:
      return "world";
    case CommAxis::shard:
      return "shard";
    case CommAxis::replicate:
      return "replicate";
    case CommAxis::sp:
      return "sp";
    case CommAxis::tp:
      return "tp";
    case CommAxis::bridge:
      return "bridge";
  }
  return "unknown";
}

CommSite site_of(CommKind kind, std::string_view what) {
  const bool bridge = what.starts_with(kBridge);
  if (bridge) what.remove_prefix(kBridge.size());
  const std::string_view component = component_of(what);
  CommAxis axis = CommAxis::world;
  if (bridge) {
    axis = CommAxis::bridge;
  } else if (!component.empty()) {
    if (what.ends_with(": weights") || what.ends_with(": gradients")) axis = CommAxis::shard;
    if (what.ends_with(": gradients over replicas")) axis = CommAxis::replicate;
    if (kind == CommKind::exchange) axis = CommAxis::sp;
    if (what.find(": tp ") != std::string_view::npos) axis = CommAxis::tp;
  }
  return {std::string(component), axis, kind};
}

}  // namespace loom
