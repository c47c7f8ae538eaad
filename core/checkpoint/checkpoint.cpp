#include "core/checkpoint/checkpoint.h"

#include "core/checkpoint/checkpoint_writer.h"

namespace loom {

std::string save_checkpoint(const std::string& run_dir, int64_t step, const std::vector<NamedTensor>& tensors,
                            const std::string& extra_json) {
  CheckpointWriter(alone(), run_dir, {.async = false}).save(step, tensors, extra_json);
  return step_folder(run_dir, step);
}

}  // namespace loom
