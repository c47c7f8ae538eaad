#pragma once
// What a checkpoint of a run holds besides tensors, and saving and restoring it.
#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_writer.h"
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

// Saves model, optimizer, loader and counters to run/checkpoints/step-N while training goes on, and removes old ones.
class RunSaver {
 public:
  // All ranks together, with the same options; `run` is rank 0's. The model and the optimizer must outlive it.
  RunSaver(const std::string& run, const WriterOptions& options, MultimodalModel& model, Optimizer& optimizer);
  // All ranks together; rank 0 has the loader. Waits for the save before, whose error it throws. Call wait_copied()
  // before anything changes.
  void save(const RunState& state, const StepLoader* loader);
  // Waits until weights and optimizer may change.
  void wait_copied() { writer_.wait_copied(); }
  // True when a save has ended since the last call, whose error it throws. Once per step.
  bool poll() { return writer_.poll(); }
  // Waits until the checkpoint is on disk.
  void finish() { writer_.finish(); }
  const WriterStats& stats() const { return writer_.stats(); }

 private:
  MultimodalModel& model_;
  Optimizer& optimizer_;
  CheckpointWriter writer_;
};

// The counters alone, for commands that do not train.
RunState read_run_state(const std::string& checkpoint);
// Everything, to the bit, each rank its own parts, under whatever layout it was saved; all of the model's ranks
// together. `loader` is null but on rank 0.
RunState restore_run(const std::string& checkpoint, MultimodalModel& model, Optimizer& optimizer, StepLoader* loader);

}  // namespace loom
