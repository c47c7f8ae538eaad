#pragma once
// Log-probabilities of targets under a linear layer's softmax, without ever holding the logits of all rows: the end of
// a language model. Chunks of rows go through one buffer.
#include <cstdint>
#include <functional>

#include "core/base/tensor.h"
#include "core/nn/gradient_sink.h"

namespace loom {

// When the gradients' products are made. In the forward, for a gradient of one per row, while a chunk's logits are
// there: three products instead of four. The backward scales them, which is all when rows have equal gradients (a mean
// over tokens); otherwise the weight's gradient is made as if nothing had been prepared. `automatic` decides by shapes.
enum class HeadGradients { automatic = 1, in_forward, in_backward };

struct LogProbOptions {
  int64_t chunk_rows = 0;  // 0 = about 4 million logits
  HeadGradients gradients = HeadGradients::automatic;
};

// How the targets fare: their log-probabilities, and 1 where the target is the most likely token (of several
// that are equally likely, each counts). Both [n], float (double for double).
struct TargetScores {
  Tensor log_probs, correct;
};

// log_softmax(x W')[target] of every row: [N] in float (double for double). x [N, width], weight [vocab, width],
// targets int64 [N].
Tensor linear_log_probs(const Tensor& x_NW, const Weight& weight_VW, const Tensor& targets_N,
                        const LogProbOptions& options);

// With a tensor as the weight.
Tensor linear_log_probs(const Tensor& x_NW, const Tensor& weight_VW, const Tensor& targets_N, int64_t chunk_rows = 0);

// Of a vocabulary that several ranks share: `weight` is this rank's part, and targets in another one's are -1.
// `combine` makes of every row's log-sum-exp and target's logit over this part (0 when it is not here) those over the
// whole, in place. The gradient of x is this part's share.
using CombineParts = std::function<void(const Tensor& lse, const Tensor& picked)>;
Tensor linear_log_probs_part(const Tensor& x_NW, const Weight& weight_VW, const Tensor& targets_N,
                             const CombineParts& combine);

// No gradients.
TargetScores linear_scores(const Tensor& x_NW, const Tensor& weight_VW, const Tensor& targets_N);

}  // namespace loom
