#pragma once
// Greedy generation for a batch of prompts: one prefill, then one row per live sequence and step, keys and values kept.
// Finished sequences leave the batch.
#include <cstdint>
#include <vector>

#include "core/model/multimodal_model.h"

namespace loom {

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  int64_t end_token = -1;  // stops a sequence; not part of the output
};

// `prompts` holds one text segment per sequence and loss_rows = its last row. Returns the new tokens of each sequence.
std::vector<std::vector<int64_t>> generate_greedy(MultimodalModel& model, const ModelBatch& prompts,
                                                  const GenerateOptions& options);

}  // namespace loom
