#pragma once
// The language-model head: log-probabilities of the targets without ever holding the logits of all rows. Losses (next
// token, distillation, preference, policy) sit on top of it.
#include <cstdint>

#include "core/base/tensor.h"
#include "core/nn/declare.h"
#include "core/nn/ops/log_probs.h"

namespace loom {

class UnitContext;

class LogProbHead {
 public:
  LogProbHead(const Declarer& d, int64_t vocab, int64_t width, Init init = Init::normal(0.02));
  LogProbHead(const Declarer& d, Param tied);  // reads an embedding table of another unit

  // Log-probability of target i at row i: [n] in float (double for double). x_NW are the supervised rows, targets int64
  // [n].
  Tensor log_probs(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const;
  // The same without gradients, in one pass with the comparison: for evaluation.
  TargetScores score(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const;
  Tensor logits(const Tensor& x_NW, UnitContext& ctx) const;  // [n, vocab], for generation

 private:
  Param weight_;
};

}  // namespace loom
