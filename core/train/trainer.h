#pragma once
// One optimizer step from one loaded step: microbatches forward and backward, norm, clip, update. The loop around it
// belongs to a pipeline. Losses are sums over a global denominator, so packing, accumulation and the number of ranks do
// not change them. On several ranks all call step() together, each with its share of the same plan, and all get the
// same statistics.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/data/loader.h"
#include "core/model/multimodal_model.h"
#include "core/train/lr_schedule.h"
#include "core/train/optimizer.h"

namespace loom {

struct TrainerOptions {
  ScheduleConfig schedule;
  double clip = 1.0;  // global norm; 0 = off
  // Called when weights and states are about to change.
  std::function<void()> before_update;
};

// Of all ranks together.
struct StepStats {
  int64_t step = 0;
  double loss = 0;       // mean over supervised tokens; 0 without any
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t samples = 0;
  int64_t tokens = 0;  // rows of the backbone
  int64_t supervised = 0;
  int64_t microbatches = 0;
  bool updated = false;  // false: nothing was supervised, weights are unchanged
  bool stop = false;     // a rank has been asked to stop: all leave the loop after this step
  std::map<std::string, double> interior;
  std::vector<std::pair<std::string, double>> component_norms;
  TapeCounters counters;
  int64_t bytes_sent = 0;  // between ranks by passes, gradients and norm
  // Of this rank: most bytes of tensors live at once during the step; 0 unless install_memory_meter() was called.
  int64_t peak_bytes = 0;
};

class Trainer {
 public:
  Trainer(MultimodalModel& model, Optimizer& optimizer, TrainerOptions options);

  // UserError, with the same words on all ranks, naming the parameter when a gradient or the loss is not finite;
  // weights and states are then as before the step.
  StepStats step(const LoadedStep& loaded);
  const TrainerOptions& options() const { return options_; }

 private:
  StepStats run_step(const LoadedStep& loaded);
  void run_microbatches(const LoadedStep& loaded, StepStats& stats);
  void sum_over_ranks(StepStats& stats);
  void learn_interior_names(const StepStats& stats);
  void refuse_not_finite(const StepStats& stats, const std::string& parameter);

  MultimodalModel& model_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  std::vector<std::string> interior_names_;  // seen on any rank so far; equal on all ranks
};

}  // namespace loom
