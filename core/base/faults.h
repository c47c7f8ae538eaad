#pragma once
// Deliberate faults, for the tests that prove that parity tests can fail (design, invariant 14). The product links
// no_faults.cpp, where every question is answered with no; tests link faults.cpp, where one fault at a time can be
// switched on. Each fault is a wrong number, never a hang.
#include <string_view>

namespace loom {

enum class Fault {
  none = 1,
  local_token_count,       // the loss is divided by this rank's supervised tokens
  missing_replica_sum,     // gradients are not summed over replicas
  averaged_gradients,      // reduce-scatter divides by the number of ranks
  slice_before_shift,      // targets are looked up inside a rank's piece, so the last row of a piece has none
  local_positions,         // positions of a piece start at zero
  replicas_counted_twice,  // the gradient norm adds every replica
  wrong_kv_group,          // Ulysses pairs query heads with the neighbouring key/value group
  bridge_keeps_local,      // gradients of embeddings that came from other ranks are dropped
  halo_without_neighbour,  // rows beyond a cut are zero
  mean_of_pieces,          // a split segment's mean is that of the local piece
  tied_overwrites,         // the second user of a parameter replaces the first one's gradient
  stale_routes,            // a microbatch uses the routes of the one before
  permutation_twice,       // outputs are permuted again instead of back
  local_random_rows,       // dropout counts rows from the beginning of the piece
  stale_weights,           // a gather returns the values of the step before
  state_per_microbatch,    // statistics are updated after every microbatch
  interior_by_local_rows,  // interior losses are divided by local counts
  empty_rank_garbage,      // an empty rank contributes what its slab held before
  missing_tp_sum,          // gradients of parameters that tp does not split (norms of q and k) are not summed over it
  bias_per_member,         // each member of a tensor group adds the bias of a row split
  part_of_vocabulary,      // log-probabilities are over a member's rows of the vocabulary
  gradient_of_own_rows,    // what other members make of gathered rows is not part of their gradient
  unweighted_merge,        // parts of an attention are merged as if each had half of the weight
  tile_from_local_rows,    // the causal mask of a tile counts rows from the beginning of its chunks
};

bool fault(Fault which);
// Switches one fault on, or all off with Fault::none. InternalError in the product.
void set_fault(Fault which);
std::string_view fault_name(Fault which);

}  // namespace loom
