#pragma once
// Steps that a plan of several ranks is made for: the recipe's data as they would be packed for those ranks, or
// invented samples that fill every lane.
#include <cstdint>
#include <string>
#include <vector>

#include "pipelines/plan_batch.h"

namespace loom {

// Whole steps of all ranks of the job's layout. A rank's share of thousands of samples is copied when it is asked for.
struct WorldBatch {
  struct Step {
    StepPlan plan;
    std::vector<size_t> contents;  // by sample: index into `samples`
  };
  std::vector<Step> steps;
  std::vector<PreparedSample> samples;
  bool synthetic = false;
  // Of a step of the recipe's size; invented steps are one of one microbatch and, when that is not all, one of two.
  int64_t microbatches = 0;
  std::string words;

  LoadedStep of_rank(size_t step, int rank) const;
};

WorldBatch world_batch_from_data(const Job& job, int steps = 3);
// Every lane's budget is filled in every microbatch.
WorldBatch synthetic_world_batch(const Job& job);
WorldBatch usual_world_batch(const Job& job);

}  // namespace loom
