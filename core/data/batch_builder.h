#pragma once
// A microbatch of a plan as tensors: samples packed one after another without padding, media items of each modality
// concatenated, targets shifted within each sample, and every slot's row known. Pure functions of the samples.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/data/loader.h"
#include "core/data/sample.h"
#include "core/model/model_batch.h"
#include "core/model/multimodal_model.h"

namespace loom {

struct BatchModality {
  const Encoder* encoder = nullptr;
  at::ScalarType compute = at::kFloat;  // what media is cast to
};
using BatchModalities = std::map<std::string, BatchModality>;

BatchModalities batch_modalities(MultimodalModel& model);

// Row t is a loss row when token t + 1 of the same sample is supervised; its target is that token.
ModelBatch build_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities);
// A microbatch of the step's plan; one that the plan does not have has no rows.
ModelBatch build_batch(const LoadedStep& step, size_t microbatch, MultimodalModel& model);

// For generation: each sample up to its first supervised token; its last row is its only loss row; no targets.
ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities);
ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, MultimodalModel& model);

}  // namespace loom
