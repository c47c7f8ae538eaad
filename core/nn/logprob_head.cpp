#include "core/nn/logprob_head.h"

#include <ATen/ATen.h>

#include "core/base/faults.h"
#include "core/nn/context.h"

namespace loom {

LogProbHead::LogProbHead(const Declarer& d, int64_t vocab, int64_t width, Init init)
    : weight_(d.param("weight", {vocab, width}, init, {Split::column})) {}

LogProbHead::LogProbHead(const Declarer& d, Param tied) : weight_(tied) { d.use(tied); }

Tensor LogProbHead::log_probs(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const {
  const Weight weight = ctx.weight(weight_);
  if (ctx.tensor_ranks() == 1) return linear_log_probs(x_NW, weight, targets_N, {});
  const UnitContext::CountedRows rows = ctx.count_rows(x_NW.size(0));
  if (rows.all == 0) return linear_log_probs(x_NW, weight, targets_N, {});
  const BlockShare mine = ctx.share(ctx.declaration(weight_).shape[0]);
  const Tensor x = ctx.gather_rows(x_NW, rows);
  const Tensor here = ctx.gather_rows(targets_N.unsqueeze(1), rows).squeeze(1) - mine.begin;
  const Tensor targets = here.masked_fill(here.lt(0).bitwise_or(here.ge(mine.count())), -1);
  const Tensor log_probs = linear_log_probs_part(x, weight, targets, [&](Tensor lse, Tensor picked) {
    if (fault(Fault::part_of_vocabulary)) return;
    const Tensor part = at::stack({lse, picked});
    const Tensor all = at::empty({ctx.tensor_ranks(), 2, rows.all}, part.options());
    ctx.gather_members("tp log-sum-exps", part, all);
    const Tensor sums = all.select(1, 0), largest = sums.amax(0);
    lse.copy_(largest + (sums - largest).exp_().sum(0).log_());
    picked.copy_(all.select(1, 1).sum(0));
  });
  return ctx.own_rows(log_probs.unsqueeze(1), rows).squeeze(1);
}

TargetScores LogProbHead::score(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const {
  return linear_scores(x_NW, ctx[weight_], targets_N);
}

Tensor LogProbHead::logits(const Tensor& x_NW, UnitContext& ctx) const { return at::linear(x_NW, ctx[weight_]); }

}  // namespace loom
