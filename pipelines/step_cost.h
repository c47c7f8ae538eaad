#pragma once
// What a step costs in floating-point operations, from its plan alone: products grow with rows (tokens, supervised
// tokens, rows of encoders and connectors), attention with the pairs that see each other. The factors come from a few
// dry runs of the model on tensors without memory, so any plugin has them.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/step_meter.h"
#include "core/step/step_plan.h"
#include "pipelines/job.h"

namespace loom {

class StepCost {
 public:
  // `example` says what items the data has; modalities that it lacks are measured with an item of a usual size.
  // PluginError when a plugin's unit does not run without memory.
  StepCost(const Job& job, const StepPlan& example);
  ~StepCost();

  // Over all ranks. The model's operations: what was computed again does not count; hardware_flops counts it, too.
  double flops(const StepPlan& plan) const;
  double hardware_flops(const StepPlan& plan) const;
  std::map<std::string, Operations> components(const StepPlan& plan) const;
  // The model's operations by unit ("backbone.blocks.0"), forward and backward. Attention of a component is shared out
  // as in the dry runs.
  std::map<std::string, double> units(const StepPlan& plan) const;

 private:
  struct Part;
  std::vector<double> features(const Part& part, const StepPlan& plan, const MicrobatchPlan& microbatch) const;
  double forward_attention(const Part& part, const StepPlan& plan, const MicrobatchPlan& microbatch) const;
  double item_attention(const Part& part, const ItemPlace& place) const;
  void calibrate(const Job& job, const StepPlan& example);
  void share_out(const std::vector<std::vector<UnitWork>>& runs,
                 const std::vector<std::vector<std::vector<double>>>& rows);

  std::unique_ptr<MultimodalModel> model_;  // without memory; its encoders lay items out
  std::vector<Part> parts_;
};

// For training, which must not end because of it: null, with a word in the log, when a plugin's unit does not run
// without memory. Call install_memory_meter() before the model is made if its bytes are to be counted, too.
std::unique_ptr<StepCost> try_step_cost(const Job& job, const StepPlan& example);

}  // namespace loom
