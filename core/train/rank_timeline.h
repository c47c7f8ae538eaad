#pragma once
// One step of all ranks as bars on one time axis, for a picture.
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/step_clock.h"

namespace loom {

// Seconds since the first rank began the step, by rank.
struct RankTimeline {
  std::vector<std::vector<StepBar>> ranks;
};

// Behind a step, on all ranks together; rank 0 gets it, the others an empty one. Clocks are set by barriers, which all
// ranks leave at about the same time: the picture is as true as that, some tens of microseconds where every rank has a
// core of its own.
RankTimeline gather_timeline(Communicator& comm, const StepClock& clock);

}  // namespace loom
