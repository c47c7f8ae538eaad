#pragma once
// Who waited for whom in a step, and what kept the one that came last. An estimate from sums of phases: ranks that
// meet in a phase leave its collectives together, so what a rank spends in them more than the one that spends least is
// waiting, for that one. Two ranks that are each late once within one phase hide each other, bytes that take longer to
// one rank count as its waiting, and where ranks share cores waiting for a core looks like waiting for a rank.
#include <map>
#include <string>
#include <vector>

#include "core/step/world_layout.h"
#include "core/train/rank_table.h"

namespace loom {

// Parts that are no component, besides "data" and "optimizer". Other: what the late rank computed does not explain a
// quarter of the wait (its core was taken, its disk slow). Between: it came late to the step (rank 0 writes reports).
inline constexpr const char* kOtherPart = "other";
inline constexpr const char* kBetweenPart = "between";

struct RankWait {
  int rank = 0, behind = 0;  // `rank` waited for `behind`
  // What `behind` computed more of since they met before: a component, or one of the parts above.
  std::string part{};
  double seconds = 0;
};

struct RankWaits {
  std::vector<RankWait> waits;  // of all phases, one per (rank, behind, part), longest first
  // Where they were spent: by the phase's part, then by rank; seconds.
  std::map<std::string, std::vector<double>> within;
  // For what: by part, then by the rank that waited; seconds.
  std::map<std::string, std::vector<double>> by_part;
  std::vector<double> by_rank;  // seconds of each, in all
  // Mean over ranks of the share of the step that they waited.
  double share = 0;
};

RankWaits waits_of(const RankTable& table, const WorldLayout& layout);

// Ranks that meet in the collectives of a component's actions: blocks of so many neighbours. Behind the actions
// (bridge, copies, norm) all meet.
int meeting_block(const WorldLayout& layout, const std::string& component);

}  // namespace loom
