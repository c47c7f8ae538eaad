#pragma once
// The zoo through core/train's Trainer: what it reports (loss, norm, interior losses) must not depend on the layout
// either.
#include <vector>

#include "core/train/trainer.h"
#include "tests/loopback/harness.h"

namespace loom::test {

// Every rank's statistics of all steps.
std::vector<std::vector<StepStats>> train_plans(const ModelSpec& spec, const RunData& data,
                                                const std::vector<StepPlan>& plans);
std::vector<StepStats> train_alone(const ModelSpec& spec, const RunData& data);
// Of loss, norm, norms of components, and interior losses, each relative.
Difference compare(const std::vector<StepStats>& reference, const std::vector<StepStats>& run);

}  // namespace loom::test
