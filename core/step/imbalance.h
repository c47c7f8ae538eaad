#pragma once
// How evenly a plan's work lies on the ranks, by predicted costs.
#include <map>
#include <string>

#include "core/step/step_plan.h"

namespace loom {

// Most over mean load, 1 = even, by component that has work ("encoders.image", "backbone"). Ranks meet in every
// microbatch, so it is the sum over microbatches of the highest load over that of the mean. Costs are those of the
// items; the backbone's are its rows.
std::map<std::string, double> imbalance_of(const StepPlan& plan);

}  // namespace loom
