#pragma once
// One optimizer step from one loaded step: microbatches forward and backward, norm, clip, update. The loop around it
// belongs to a pipeline. Losses are sums over a global denominator, so packing and accumulation do not change them.
#include <cstdint>
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
};

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
  std::map<std::string, double> interior;
  std::vector<std::pair<std::string, double>> component_norms;
  TapeCounters counters;
};

class Trainer {
 public:
  Trainer(MultimodalModel& model, Optimizer& optimizer, TrainerOptions options);

  // UserError naming the parameter when a gradient or the loss is not finite; weights are then as before the step.
  StepStats step(const LoadedStep& loaded);
  const TrainerOptions& options() const { return options_; }

 private:
  MultimodalModel& model_;
  Optimizer& optimizer_;
  TrainerOptions options_;
};

}  // namespace loom
