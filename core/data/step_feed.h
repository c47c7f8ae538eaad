#pragma once
// Loaded steps on every rank. Rank 0 reads, prepares and plans; it sends the verdicts to all, and the tokens and media
// of a sample to the ranks that hold rows of it or encode an item of it, once each. From equal verdicts every rank
// makes the same plan.
#include "core/comm/communicator.h"
#include "core/data/loader.h"

namespace loom {

class StepFeed {
 public:
  // `loader` on rank 0, null elsewhere. `budget` and `layout` are equal everywhere.
  StepFeed(Communicator& comm, StepLoader* loader, int64_t budget, WorldLayout layout);
  // The next step, on all ranks together. An error of the loader is thrown on rank 0; the others then learn of a failed
  // peer.
  LoadedStep next();

 private:
  Communicator& comm_;
  StepLoader* loader_;
  int64_t budget_;
  WorldLayout layout_;
};

// Which ranks need a sample's tokens or media, ascending (exposed for tests).
std::vector<int> ranks_of_sample(const StepPlan& plan, size_t sample);

}  // namespace loom
