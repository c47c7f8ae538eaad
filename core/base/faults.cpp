// The tests' twin of no_faults.cpp: one fault at a time, for every rank of the process.
#include "core/base/faults.h"

#include <atomic>

namespace loom {
namespace {

std::atomic<Fault> active{Fault::none};

}  // namespace

bool fault(Fault which) { return active.load(std::memory_order_relaxed) == which; }

void set_fault(Fault which) { active = which; }

std::string_view fault_name(Fault which) {
  switch (which) {
    case Fault::none:
      return "none";
    case Fault::local_token_count:
      return "local_token_count";
    case Fault::missing_replica_sum:
      return "missing_replica_sum";
    case Fault::averaged_gradients:
      return "averaged_gradients";
    case Fault::slice_before_shift:
      return "slice_before_shift";
    case Fault::local_positions:
      return "local_positions";
    case Fault::replicas_counted_twice:
      return "replicas_counted_twice";
    case Fault::wrong_kv_group:
      return "wrong_kv_group";
    case Fault::bridge_keeps_local:
      return "bridge_keeps_local";
    case Fault::halo_without_neighbour:
      return "halo_without_neighbour";
    case Fault::mean_of_pieces:
      return "mean_of_pieces";
    case Fault::tied_overwrites:
      return "tied_overwrites";
    case Fault::stale_routes:
      return "stale_routes";
    case Fault::permutation_twice:
      return "permutation_twice";
    case Fault::local_random_rows:
      return "local_random_rows";
    case Fault::stale_weights:
      return "stale_weights";
    case Fault::state_per_microbatch:
      return "state_per_microbatch";
    case Fault::interior_by_local_rows:
      return "interior_by_local_rows";
    case Fault::empty_rank_garbage:
      return "empty_rank_garbage";
    case Fault::missing_tp_sum:
      return "missing_tp_sum";
    case Fault::bias_per_member:
      return "bias_per_member";
    case Fault::part_of_vocabulary:
      return "part_of_vocabulary";
    case Fault::gradient_of_own_rows:
      return "gradient_of_own_rows";
    case Fault::unweighted_merge:
      return "unweighted_merge";
    case Fault::tile_from_local_rows:
      return "tile_from_local_rows";
  }
  return "unknown";
}

}  // namespace loom
