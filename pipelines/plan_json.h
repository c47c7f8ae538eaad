#pragma once
// What the JSON of all plans has in common.
#include <nlohmann/json.hpp>

#include "pipelines/plan.h"

namespace loom {

inline nlohmann::ordered_json row_json(const PlanRow& row) {
  return {{"component", row.component}, {"params", row.params},          {"trainable", row.trainable},
          {"layout", row.layout},       {"weights", row.weights},        {"gradients", row.gradients},
          {"optimizer", row.optimizer}, {"activations", row.activations}};
}

inline nlohmann::ordered_json peak_json(const TrainingPlan& plan) {
  return {{"bytes", plan.peak},          {"at", plan.peak_at},          {"weights", plan.weights},
          {"gathered", plan.gathered},   {"gradients", plan.gradients}, {"optimizer", plan.optimizer},
          {"tables", plan.tables},       {"batch", plan.batch_bytes},   {"kept", plan.kept},
          {"transient", plan.transient}, {"snapshot", plan.snapshot}};
}

}  // namespace loom
