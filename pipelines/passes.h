#pragma once
// How many samples go through the model at once outside of training: passes of bounded tokens, in order, so that memory
// depends on data.budget and not on how long somebody's conversations are.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/data/sample.h"
#include "core/model/generator.h"

namespace loom {

// Samples [first, second) of a list.
using Pass = std::pair<size_t, size_t>;

// Each pass takes at most `budget` tokens (a sample above it is alone).
std::vector<Pass> split_passes(const std::vector<int64_t>& tokens, int64_t budget);
// The same for prompts; the keys and values that are kept, as many per sequence as the longest one needs, are bounded
// to eight budgets, too.
std::vector<Pass> split_prompts(const std::vector<int64_t>& tokens, int64_t max_new_tokens, int64_t budget);

// Answers for samples of any number, one pass after another. `on_token` is told numbers of `samples`. When
// a stop is requested the rest stays empty.
std::vector<std::vector<int64_t>> generate_in_passes(MultimodalModel& model,
                                                     const std::vector<const PreparedSample*>& samples,
                                                     const GenerateOptions& options, int64_t budget);

}  // namespace loom
