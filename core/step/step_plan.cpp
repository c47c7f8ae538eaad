// Packing keeps samples whole and their order within a microbatch; first fit, so that a plan is a function of the
// verdicts alone.
#include "core/step/step_plan.h"

#include "core/base/error.h"

namespace loom {

std::vector<MicrobatchPlan> pack_samples(const std::vector<Verdict>& samples, int64_t budget) {
  std::vector<MicrobatchPlan> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t tokens = samples[i].tokens;
    LOOM_CHECK_USER(tokens <= budget, samples[i].name, ": ", tokens, " tokens exceed data.budget = ", budget);
    MicrobatchPlan* home = nullptr;
    for (MicrobatchPlan& candidate : out) {
      if (candidate.tokens + tokens <= budget) {
        home = &candidate;
        break;
      }
    }
    if (home == nullptr) home = &out.emplace_back();
    home->samples.push_back(static_cast<int64_t>(i));
    home->tokens += tokens;
  }
  return out;
}

StepPlan make_step_plan(int64_t step, std::vector<Verdict> samples, int64_t budget, uint64_t next_position) {
  StepPlan plan;
  plan.step = step;
  plan.budget = budget;
  plan.next_position = next_position;
  plan.microbatches = pack_samples(samples, budget);
  for (const Verdict& v : samples) {
    LOOM_CHECK(v.ok, "a skipped sample in a plan: ", v.name);
    plan.supervised += v.supervised;
    plan.tokens += v.tokens;
  }
  plan.samples = std::move(samples);
  return plan;
}

}  // namespace loom
