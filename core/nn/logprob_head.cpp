#include "core/nn/logprob_head.h"

#include <ATen/ATen.h>

#include "core/nn/context.h"

namespace loom {

LogProbHead::LogProbHead(const Declarer& d, int64_t vocab, int64_t width, Init init)
    : weight_(d.param("weight", {vocab, width}, init, {Split::column})) {}

LogProbHead::LogProbHead(const Declarer& d, Param tied) : weight_(tied) { d.use(tied); }

Tensor LogProbHead::log_probs(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const {
  return linear_log_probs(x_NW, ctx.weight(weight_), targets_N, {});
}

TargetScores LogProbHead::score(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const {
  return linear_scores(x_NW, ctx[weight_], targets_N);
}

Tensor LogProbHead::logits(const Tensor& x_NW, UnitContext& ctx) const { return at::linear(x_NW, ctx[weight_]); }

}  // namespace loom
