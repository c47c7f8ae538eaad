#pragma once
// The plan of one optimizer step: which samples, which microbatch each one is packed into, which items their encoders
// see, where each embedding lands, and the global denominators. Made from verdicts alone, equal on every rank, so
// nobody has to agree on anything during the step (design, idea 6).
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/step/item_layout.h"

namespace loom {

// A media item inside a sample: `slots` consecutive rows of the sample, from `begin`, are replaced by its embeddings.
struct ItemPlace {
  std::string modality;
  ItemMeta meta;
  int64_t begin = 0;
  int64_t slots = 0;
};

// What the owner of a sample says once it has decoded and prepared it. Pure metadata.
struct Verdict {
  uint64_t position = 0;  // index in the recipe's endless order of samples
  uint64_t sample = 0;    // key of the sample; randomness and journal use it
  std::string name;       // for people: "train.0#1234"
  bool ok = true;
  std::string reason;      // why it was skipped
  int64_t tokens = 0;      // rows in the backbone
  int64_t supervised = 0;  // rows with a target
  std::vector<ItemPlace> items;
};

// Samples [index into StepPlan::samples] whose rows lie one after another in a microbatch.
struct MicrobatchPlan {
  std::vector<int64_t> samples;
  int64_t tokens = 0;
};

struct StepPlan {
  int64_t step = 0;                          // from 1
  std::vector<Verdict> samples;              // in sample order, all ok
  std::vector<MicrobatchPlan> microbatches;  // of this lane
  int64_t budget = 0;                        // tokens per lane and microbatch
  int64_t supervised = 0;                    // global count: denominator of the next-token loss
  int64_t tokens = 0;
  uint64_t next_position = 0;  // where the following step continues
};

// Packs samples into microbatches of at most `budget` tokens, in order, first fit. UserError when one sample exceeds
// the budget.
std::vector<MicrobatchPlan> pack_samples(const std::vector<Verdict>& samples, int64_t budget);

// Completes a plan from ok verdicts in sample order.
StepPlan make_step_plan(int64_t step, std::vector<Verdict> samples, int64_t budget, uint64_t next_position);

}  // namespace loom
