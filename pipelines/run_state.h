#pragma once
// What a checkpoint of a run holds besides tensors, and saving and restoring it.
#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/data/loader.h"
#include "core/model/multimodal_model.h"
#include "core/train/optimizer.h"

namespace loom {

struct RunState {
  int64_t step = 0;          // finished steps
  double train_seconds = 0;  // evaluation and saving excluded
  int64_t tokens = 0;
  int64_t samples = 0;
};

// Model, optimizer, loader and counters to run/checkpoints/step-N; then removes old ones. On several ranks all call it;
// rank 0, which has the loader, writes, and the others wait until the checkpoint is on disk.
void save_run(const std::string& run, int64_t keep, const RunState& state, MultimodalModel& model, Optimizer& optimizer,
              const StepLoader* loader);
// The counters alone, for commands that do not train.
RunState read_run_state(const std::string& checkpoint);
// Everything, to the bit, each rank its own parts, under whatever layout it was saved. `loader` is null but on rank 0.
RunState restore_run(const std::string& checkpoint, MultimodalModel& model, Optimizer& optimizer, StepLoader* loader);

}  // namespace loom
