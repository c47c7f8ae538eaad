#pragma once
// Who sent how much to whom: calls and bytes of collectives by kind, by the axis of the mesh that they run along, and
// by component. The axis and the component are read off the name that every collective has.
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace loom {

enum class CommKind { all_gather = 1, reduce_scatter, all_reduce, exchange, barrier, broadcast };

const char* comm_kind_name(CommKind kind);  // "all_gather"

// shard, replicate: ranks that hold a copy of weights together, or the same part of several copies. sp: ranks that hold
// slices of the same segments. tp: ranks that hold parts of the same layers. bridge: from component to component.
// world: all ranks, for what belongs to no axis.
enum class CommAxis { world = 1, shard, replicate, sp, tp, bridge };

const char* comm_axis_name(CommAxis axis);  // "shard"

struct CommCount {
  int64_t calls = 0;
  int64_t bytes = 0;  // that this rank sent to other ranks
};

struct CommSite {
  std::string component;  // "encoders.image", "backbone"; "" for what belongs to none
  CommAxis axis = CommAxis::world;
  CommKind kind = CommKind::exchange;
  auto operator<=>(const CommSite&) const = default;
};

using Traffic = std::map<CommSite, CommCount>;

// Names are "COMPONENT.UNIT: PURPOSE" ("encoders.image.blocks.3: weights") or "bridge: COMPONENT ...".
CommSite site_of(CommKind kind, std::string_view what);

}  // namespace loom
