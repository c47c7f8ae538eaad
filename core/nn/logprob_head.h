#pragma once
// The language-model head: log-probabilities of the targets without ever holding the logits of all rows. Losses (next
// token, distillation, preference, policy) sit on top of it.
#include <cstdint>

#include "core/base/tensor.h"
#include "core/nn/declare.h"

namespace loom {

class UnitContext;

// How the targets fare: their log-probabilities, and 1 where the target is the most likely token (of several
// that are equally likely, each counts). Both [n], float (double for double).
struct TargetScores {
  Tensor log_probs, correct;
};

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

// The arithmetic, by itself: rows of x times rows of weight, log-softmax, pick. `chunk_rows` = 0 chooses a chunk of
// about 16 MB.
Tensor linear_log_probs(const Tensor& x_NW, const Tensor& weight_VW, const Tensor& targets_N, int64_t chunk_rows = 0);

}  // namespace loom
