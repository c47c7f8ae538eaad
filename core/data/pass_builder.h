#pragma once
// An encoder pass of a plan as tensors and moves: items of one or several microbatches, where their connector runs, and
// where their embeddings land. Pure functions of the plan and the samples, on every rank alike.
#include <cstdint>
#include <vector>

#include "core/data/batch_builder.h"

namespace loom {

// What `rank` does in a pass. `samples` as in build_batch.
EncoderBatch build_pass(const StepPlan& plan, const EncoderPass& pass,
                        const std::vector<const PreparedSample*>& samples, const BatchModality& use, int rank);

// InternalError when this rank has no contents of the sample.
const PreparedSample& contents_of(const StepPlan& plan, const std::vector<const PreparedSample*>& samples,
                                  int64_t index, int rank);
// int64 [values]
Tensor longs(const std::vector<int64_t>& values);

}  // namespace loom
