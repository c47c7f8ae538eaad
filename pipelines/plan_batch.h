#pragma once
// What a plan is made for: steps of the recipe's data, as the packer would make them, or invented samples that fill the
// budget when there is no data (yet). Media are tensors without memory; nobody looks at pixels.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/data/loader.h"
#include "pipelines/job.h"

namespace loom {

struct PlanBatch {
  std::vector<LoadedStep> largest;  // candidates for the microbatch that needs most memory, one microbatch each
  std::vector<StepPlan> steps;      // whole steps, for counting operations
  double repeat = 1;                // steps of the recipe's size are this many times those
  bool synthetic = false;
  std::string words;  // "first 3 steps of the data"
};

// The first steps of the recipe's training data. UserError when it cannot be read.
PlanBatch batch_from_data(const Job& job, int steps = 3);
// One microbatch of `budget` tokens (0 = data.budget): text, and one item of every modality per sample, of a size that
// the encoder takes. UserError when a sample does not fit.
PlanBatch synthetic_batch(const Job& job, int64_t budget = 0);
// What from_data(job) makes of the recipe's data when it can be read, else invented(job), whose words then say why.
template <class FromData, class Invented>
auto data_or_invented(const Job& job, const FromData& from_data, const Invented& invented) {
  std::string why;
  try {
    return from_data(job);
  } catch (const UserError& error) {
    why = error.what();
  }
  auto out = invented(job);
  out.words += concat(" (", why, ")");
  return out;
}
PlanBatch usual_batch(const Job& job);
// A step that has been loaded anyway.
PlanBatch batch_from_step(const LoadedStep& step);
// The same samples packed to another budget; nothing when one of them is longer.
std::optional<PlanBatch> repacked(const PlanBatch& batch, int64_t budget);

// An item that the modality's encoder takes: the recipe's image_size, else a usual size; nothing when it refuses all.
std::optional<ItemPlace> guess_item(const Job& job, const std::string& modality);
// A sample without contents: a begin token, the items' slots, then `text` tokens of which the last `supervised` are
// targets.
PreparedSample plan_sample(const Job& job, std::vector<ItemPlace> items, int64_t text, int64_t supervised);

// Invented samples that fill a budget: one item of every modality each, then text.
struct FullLane {
  std::vector<PreparedSample> kinds;
  std::vector<size_t> order;  // of kinds
  std::string words;
};
FullLane full_lane(const Job& job, int64_t budget);
// The sample's verdict as that of sample `number` of a step.
Verdict numbered(const PreparedSample& sample, size_t number);
LoadedStep without_values(LoadedStep step);

}  // namespace loom
