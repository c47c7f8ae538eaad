#pragma once
// Generation for a batch of prompts: one prefill, then one row per live sequence and step, keys and values kept.
// Finished sequences leave the batch. Greedy, or sampled; what is drawn is a function of (seed, key of the prompt's
// sample, position), so an answer depends neither on its neighbours nor on its place in the batch.
#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/multimodal_model.h"

namespace loom {

struct Sampling {
  double temperature = 0;  // 0 = greedy: the most likely token
  double top_p = 1;        // only the likeliest tokens that together reach this probability
  int64_t top_k = 0;       // only so many; 0 = all
  uint64_t seed = 0;
};

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  std::vector<int64_t> end_tokens{};  // any of them stops a sequence; not part of the output
  Sampling sampling{};
  // Told every token as it comes, with the number of its prompt; false stops that sequence (the token stays).
  std::function<bool(int64_t sequence, int64_t token)> on_token{};
};

// `prompts` holds one text segment per sequence and loss_rows = its last row. Returns the new tokens of each sequence.
std::vector<std::vector<int64_t>> generate(MultimodalModel& model, const ModelBatch& prompts,
                                           const GenerateOptions& options);

// One token from a row of logits [vocab]; `draw` in [0, 1) is the random number (exposed for tests).
int64_t pick_token(const Tensor& logits, const Sampling& sampling, double draw);

}  // namespace loom
