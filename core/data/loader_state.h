#pragma once
// Where a loader stands, as a value: it goes into a checkpoint's `extra` and brings back exactly the next step.
// Everything in it is about samples that were delivered; what was prepared ahead is not part of the state and so can
// neither be lost nor doubled.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/data/order.h"

namespace loom {

struct LoaderState {
  uint64_t position = 0;  // of the first sample that no step has consumed
  int64_t next_step = 1;
  int64_t seen = 0;                        // samples consumed, skipped ones included
  int64_t skipped = 0;                     // could not be used
  int64_t left_out = 0;                    // left out as the recipe asked
  std::map<std::string, uint64_t> epochs;  // per source: the epoch of its next sample, for people
  // What the position is a position in.
  std::vector<OrderSource> sources;
  uint64_t seed = 0;
  bool shuffle = true;
  std::vector<MixSegment> mix;      // of the recipe; empty = none given
  std::vector<MixSegment> changes;  // made while the run went on, before the position; ascending

  std::string json() const;  // one line
};

bool operator==(const LoaderState& a, const LoaderState& b);

// UserError naming `where` when the text is not a loader state.
LoaderState parse_loader_state(const std::string& json, const std::string& where);
// UserError with both values when the recipe's data is not what the state was made with.
void check_same_order(const LoaderState& state, const SampleOrder& order);

}  // namespace loom
