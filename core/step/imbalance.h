#pragma once
// How a plan's work lies on the ranks, by predicted costs.
#include <map>
#include <string>
#include <vector>

#include "core/step/step_plan.h"

namespace loom {

// What a plan gives one rank of one component.
struct RankLoad {
  int64_t items = 0;   // samples of the backbone; one that is divided counts where its first rows lie
  int64_t tokens = 0;  // rows: that enter an encoder, that leave a connector, of the text
  double cost = 0;     // of an encoder's items and the backbone's samples by their measure; of a connector rows
};

// By component ("encoders.image", "connectors.image", "backbone"), then by rank; of a microbatch and of the step.
std::map<std::string, std::vector<RankLoad>> rank_loads(const StepPlan& plan, const MicrobatchPlan& microbatch);
std::map<std::string, std::vector<RankLoad>> rank_loads(const StepPlan& plan);

// Most over mean load, 1 = even, by component that has work ("encoders.image", "backbone"). Ranks meet in every
// microbatch, or pass of an encoder, so it is the sum over these of the highest load over that of the mean. Connectors
// follow their encoders or the backbone, so they say nothing of their own.
std::map<std::string, double> imbalance_of(const StepPlan& plan);

}  // namespace loom
