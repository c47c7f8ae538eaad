#pragma once
// Loaded steps on every rank. Rank 0 reads, prepares and plans; it sends the verdicts to all, a sample's tokens to
// the ranks that hold rows of it, and of its media every row to the rank that encodes it, once each. From equal
// verdicts every rank makes the same plan.
#include <cstdint>
#include <map>
#include <vector>

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

struct MediaRows {
  int64_t begin = 0, rows = 0;
};
// What a rank needs of a sample.
struct SampleShare {
  bool text = false;
  std::vector<MediaRows> media;  // by item
};
// By rank (exposed for tests).
std::map<int, SampleShare> shares_of_sample(const StepPlan& plan, size_t sample);

}  // namespace loom
