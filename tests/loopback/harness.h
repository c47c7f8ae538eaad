#pragma once
// Trains a few steps of a zoo model on N loopback ranks and records everything that must not depend on the layout:
// loss, interior losses, gradients and weights as whole tensors, states. Driven by hand instead of the trainer, so that
// a difference points at the model and its services.
#include <map>
#include <string>
#include <vector>

#include "tests/loopback/model_spec.h"
#include "tests/loopback/step_data.h"

namespace loom::test {

struct StepRecord {
  double loss = 0;  // mean over supervised tokens
  std::map<std::string, double> interior;
  std::map<std::string, Tensor> gradients, weights, states;  // whole tensors by full name
};

// Sums over ranks, steps and microbatches.
struct RunCounters {
  TapeCounters tape;
  int64_t bytes_sent = 0;
  int64_t exchanged = 0;  // bytes of point-to-point moves
};

struct RunRecord {
  std::vector<StepRecord> steps;
  std::map<std::string, std::string> unit_of;  // parameter -> the unit whose buffer holds it
  RunCounters counters;
  std::string disagreement{};  // what two ranks hold differently although it is the same by contract; empty = nothing
};

// The steps' samples; equal for all layouts.
using RunData = std::vector<std::vector<PreparedSample>>;
RunData random_data(const ModelSpec& spec, const BindChoice& bind, const DataChoice& choice, int64_t steps = 2);

// Trains data.size() steps with plain SGD. InternalError when the pieces of all ranks do not cover a tensor.
RunRecord run_plans(const ModelSpec& spec, const BindChoice& bind, const LayoutChoice& layout, const RunData& data,
                    const std::vector<StepPlan>& plans);
std::vector<StepPlan> random_plans(const ModelSpec& spec, const BindChoice& bind, const LayoutChoice& layout,
                                   const RunData& data);
// The same data on one rank in one microbatch, without recompute.
RunRecord run_reference(const ModelSpec& spec, BindChoice bind, const RunData& data);
// The same on one rank in two microbatches.
RunRecord run_in_two(const ModelSpec& spec, BindChoice bind, const RunData& data, uint64_t seed);

// What one rank does with one microbatch of a plan; samples of which it holds nothing are not even shown to it.
ModelBatch rank_batch(const StepPlan& plan, size_t microbatch, const std::vector<PreparedSample>& samples,
                      const MultimodalModel& model, int rank);
Denominators denominators_of(const StepPlan& plan);

// The worst of all comparisons, by the measure of the design: per tensor |g - g'| / max(|g|, 1e-6 |gradients of its
// unit|); weights and states likewise, numbers by themselves. Gradients and weights of float32 runs are compared in
// the first step, which begins at equal weights (a bias that begins at zero is nothing but gradients); those of float64
// in all.
struct Difference {
  double worst = 0;
  std::string where{};
  int64_t tensors = 0;
  int64_t by_noise = 0;  // judged by their own rounding
};
// `exact`, for float32: the reference in float64. Two results cannot agree better than each agrees with the exact one
// (a bias gradient is a sum that cancels), so a difference counts in multiples of one rank's own error where that is
// above the tolerance / kNoise: the largest of the reference's and those of `others`, runs of one rank which add in
// other orders, or start from weights that differ in their last bits.
Difference compare(const RunRecord& reference, const RunRecord& run, const RunRecord* exact = nullptr,
                   const std::vector<RunRecord>& others = {});
inline constexpr double kNoise = 4;
inline double tolerance(at::ScalarType dtype) { return dtype == at::kDouble ? 1e-10 : 2e-5; }

}  // namespace loom::test
