#pragma once
// What a step needs and sends on several ranks, planned by one process: a rank's model, tape and optimizer run whole
// steps on tensors without memory over a communicator that moves nothing. Few ranks are all run; of many, those with
// most work of a kind.
#include <cstdint>
#include <string>
#include <vector>

#include "pipelines/plan.h"
#include "pipelines/plan_world_batch.h"

namespace loom {

struct RankFigures {
  int rank = 0;
  int64_t peak = 0;  // bytes
  int64_t sent = 0;  // bytes per step
  double flops = 0;  // of the model, per step
};

struct WorldPlan {
  WorldLayout layout;
  std::string batch;  // where it is from
  bool synthetic = false;
  int64_t tokens = 0, samples = 0;  // of a step, all ranks
  int64_t microbatches = 0, budget = 0;
  // Those that were run, ascending; all of the world when `complete`.
  std::vector<RankFigures> ranks;
  bool complete = true;
  // The one whose peak is the largest: memory, and what it sends and computes in a step (the mean of the batch's).
  int largest = 0;
  TrainingPlan plan;
  Traffic traffic;
  std::vector<std::string> limits;  // what decides, and what may be changed

  int64_t sent() const;  // bytes, of the largest rank
};

constexpr int kMostPlannedRanks = 16384;

// UserError when the recipe's layout does not fit: ranks of a lane or an item without a head of their own.
WorldPlan plan_world(const Job& job, const WorldBatch& batch);
// The ranks that are run (exposed for tests).
std::vector<int> ranks_to_run(const WorldBatch& batch);

}  // namespace loom
