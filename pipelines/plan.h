#pragma once
// What a training step needs, before and without running it: the same trainer, model, tape and optimizer run a step on
// tensors without memory, while the meters count. One rank, alone or of several (plan_world.h).
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/step_meter.h"
#include "pipelines/job.h"
#include "pipelines/plan_batch.h"

namespace loom {

struct PlanRow {
  std::string component;  // "encoders.image"; the last one is "batch and bridge"
  int64_t params = 0, trainable = 0;
  std::string layout;
  int64_t weights = 0, gradients = 0, optimizer = 0;  // bytes
  int64_t activations = 0;                            // bytes alive at the peak
  double flops = 0;                                   // of the model, per optimizer step
};

// Units whose names differ by a number only ("blocks.*"), in one microbatch.
struct PlanUnits {
  std::string component, units;
  int64_t count = 0;
  Operations forward, backward;
};

struct TrainingPlan {
  std::vector<PlanRow> rows;
  std::vector<PlanUnits> units;
  // The microbatch that needs most memory.
  std::string batch;  // where it is from
  int64_t tokens = 0, supervised = 0, samples = 0, budget = 0;
  // Bytes at the peak of the second step, when gradients and optimizer state exist; the parts sum up to it.
  int64_t peak = 0;
  int64_t weights = 0, gathered = 0, gradients = 0, optimizer = 0, tables = 0, batch_bytes = 0, kept = 0, transient = 0;
  std::string peak_at;  // "backward of backbone.head"
  // Host memory beyond the peak, for the copy that a checkpoint is written from in the background: what the rank's
  // share of a save is when copies of weights are shared out evenly.
  int64_t snapshot = 0;
  Operations step;  // of one optimizer step
  // What the peak would be otherwise; nothing when it is not worth a word.
  std::optional<int64_t> recomputed_peak, half_budget_peak;
  std::optional<int64_t> full_budget_peak;  // of invented samples, when the data's leave room

  int64_t activations() const { return batch_bytes + kept + transient; }
};

// PluginError, naming the unit, when a plugin does something that needs values.
TrainingPlan plan_training(const Job& job, const PlanBatch& batch);
// For usual_batch().
TrainingPlan plan_training(const Job& job);
// Its memory alone: neither operations nor what would lower the peak.
TrainingPlan plan_memory(const Job& job, const PlanBatch& batch);

// What one rank of several sends and computes in a step.
struct RankStep {
  Traffic traffic;
  Operations work;
};

struct RankPlan {
  TrainingPlan plan;            // memory, at the peak of all steps; without what batches and operations say
  std::vector<RankStep> steps;  // parallel to the steps
};

// One rank of the job's layout, which holds the contents of these steps that are its own. `comm` moves nothing
// (core/comm/dry.h).
RankPlan plan_rank(const Job& job, Communicator& comm, const std::vector<LoadedStep>& steps,
                   std::optional<bool> recompute = std::nullopt);

}  // namespace loom
