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
  std::string outputs{};                // partition of the encoder's "features"
  std::string stream{};                 // of the backbone, when embeddings are rows of a stream of their own
  std::string origin{};                 // "plugin 'vit' (...)", for messages
  ConnectorWidths widths{};
};
using BatchModalities = std::map<std::string, BatchModality>;

BatchModalities batch_modalities(const MultimodalModel& model);

// What `rank` holds of a microbatch. `samples` are parallel to plan.samples; those of which this rank holds nothing may
// be null. Row t is a loss row when token t + 1 of the same sample is supervised, wherever that token lies.
ModelBatch build_batch(const StepPlan& plan, size_t microbatch, const std::vector<const PreparedSample*>& samples,
                       const BatchModalities& modalities, int rank);
// A microbatch of the loaded step's plan on the model's rank.
ModelBatch build_batch(const LoadedStep& step, size_t microbatch, const MultimodalModel& model);
// All of these samples on one rank, in one microbatch.
ModelBatch build_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities);

// Where a sample's answer begins: its last run of supervised tokens. The number of tokens when nothing is supervised.
int64_t answer_begin(const PreparedSample& sample);

// For generation, on one rank: each sample up to its answer, earlier answers being given as they are; its last row is
// its only loss row; no targets.
ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, const BatchModalities& modalities);
ModelBatch build_prompt_batch(const std::vector<const PreparedSample*>& samples, const MultimodalModel& model);

}  // namespace loom
