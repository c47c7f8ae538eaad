#pragma once
// A Chrome trace of some training steps: LibTorch's profiler records its operations (and the kernels of a GPU), our
// actions are named ranges around them. Opened by chrome://tracing or Perfetto.
#include <cstdint>
#include <memory>
#include <string>

#include "core/model/multimodal_model.h"

namespace loom {

struct ProfileRange {
  int64_t first = 3, last = 5;  // both are recorded
};

// "3:5" or "4"; UserError for anything else.
ProfileRange parse_profile_steps(const std::string& text);

class StepProfile final : public StepObserver {
 public:
  // Records the steps of `range` into `file`, which is made at once, so that a folder that cannot be written is told
  // before the training: EnvironmentError. All calls come from one thread.
  StepProfile(MultimodalModel& model, std::string file, ProfileRange range);
  ~StepProfile() override;
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  void begin_step(int64_t step);
  void end_step(int64_t step);
  // Writes what has been recorded, also when the run ends within the range; then it is over.
  void finish();

  void begin(StepAction action, const std::string& component, const std::string& unit) override;
  void end() override;

 private:
  struct Range;

  MultimodalModel& model_;
  std::string file_;
  ProfileRange range_;
  bool recording_ = false, over_ = false;
  int64_t first_ = 0, last_ = 0;  // recorded so far
  std::unique_ptr<Range> step_, action_;
};

}  // namespace loom
