// Chunks of rows: logits, their log-sum-exp and the picked logit; the backward makes each chunk's logits again and
// turns them in place into gradients. Memory is one chunk whatever the batch; the price is one more GEMM in the
// backward.
#include "core/nn/logprob_head.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/context.h"
#include "core/nn/differentiable.h"
#include "core/nn/flops.h"
#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

constexpr int64_t kChunkElements = int64_t{4} << 20;

int64_t rows_per_chunk(int64_t vocab, int64_t asked) {
  return asked > 0 ? asked : std::clamp<int64_t>(kChunkElements / std::max<int64_t>(vocab, 1), 32, 8192);
}

void check(const Tensor& x, const Tensor& weight, const Tensor& targets) {
  LOOM_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), "head: rows ", x.sizes(), ", weight ",
             weight.sizes());
  LOOM_CHECK(targets.dim() == 1 && targets.size(0) == x.size(0) && targets.scalar_type() == at::kLong, "head: targets ",
             targets.sizes(), " of ", targets.scalar_type(), " for ", x.size(0), " rows");
  if (targets.is_meta()) return;
  const auto* ids = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.size(0); ++i) {
    LOOM_CHECK(ids[i] >= 0 && ids[i] < weight.size(0), "head: target ", ids[i], " with a vocabulary of ",
               weight.size(0));
  }
}

// Logits of rows [begin, begin + count) in work dtype.
Tensor chunk_logits(const Tensor& x, const Tensor& weight, int64_t begin, int64_t count) {
  return rows::work_tensor(at::mm(x.narrow(0, begin, count), weight.t()));
}

// `largest`, when given, receives each row's largest logit.
Tensor all_lse(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk, Tensor& picked,
               Tensor* largest = nullptr) {
  Tensor lse = at::empty({x.size(0)}, x.options().dtype(rows::work_dtype(x)));
  picked = at::empty_like(lse);
  if (largest != nullptr) *largest = at::empty_like(lse);
  for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
    const int64_t count = std::min(chunk, x.size(0) - begin);
    const Tensor logits = chunk_logits(x, weight, begin, count);
    rows::dispatch(logits, [&](auto zero) {
      using T = decltype(zero);
      T* out = lse.mutable_data_ptr<T>() + begin;
      rows::parallel(count, logits.size(1), [&](int64_t b, int64_t e) {
        kernels::kernel_set<T>().row_lse(rows::read<T>(logits), out, logits.size(1), b, e);
      });
    });
    picked.narrow(0, begin, count).copy_(logits.gather(1, targets.narrow(0, begin, count).unsqueeze(1)).squeeze(1));
    if (largest != nullptr) largest->narrow(0, begin, count).copy_(logits.amax(1));
  }
  return lse;
}

std::vector<Tensor> gradients(const BackwardCall& call, int64_t chunk) {
  const Tensor &x = call.saved[0], &weight = call.saved[1], &targets = call.saved[2], &lse = call.saved[3];
  const Tensor grad = call.grad.to(lse.scalar_type()).contiguous();
  Tensor dx, dweight;
  if (call.needs[0]) dx = at::empty(x.sizes(), x.options());
  if (call.needs[1]) dweight = at::zeros(weight.sizes(), weight.options().dtype(rows::work_dtype(weight)));
  for (int64_t begin = 0; begin < x.size(0); begin += chunk) {
    const int64_t count = std::min(chunk, x.size(0) - begin);
    const Tensor dlogits = [&] {
      const ComputedAgain again;
      return chunk_logits(x, weight, begin, count);
    }();
    rows::dispatch(dlogits, [&](auto zero) {
      using T = decltype(zero);
      rows::parallel(count, dlogits.size(1), [&](int64_t b, int64_t e) {
        kernels::kernel_set<T>().logprob_backward(rows::write<T>(dlogits), lse.const_data_ptr<T>() + begin,
                                                  targets.const_data_ptr<int64_t>() + begin,
                                                  grad.const_data_ptr<T>() + begin, dlogits.size(1), b, e);
      });
    });
    const Tensor narrow = dlogits.to(x.scalar_type());
    if (dx.defined()) {
      Tensor part = dx.narrow(0, begin, count);
      at::mm_out(part, narrow, weight);
    }
    if (!dweight.defined()) continue;
    if (dweight.scalar_type() == x.scalar_type()) {
      dweight.addmm_(narrow.t(), x.narrow(0, begin, count));
    } else {
      // Half types: chunks are summed in float. add_ would widen on CPU by itself, unseen by a dry run.
      dweight.add_(at::mm(narrow.t(), x.narrow(0, begin, count)).to(dweight.scalar_type()));
    }
  }
  return {dx, dweight.defined() ? dweight.to(weight.scalar_type()) : dweight};
}

}  // namespace

Tensor linear_log_probs(const Tensor& x_NW, const Tensor& weight_VW, const Tensor& targets_N, int64_t chunk_rows) {
  check(x_NW, weight_VW, targets_N);
  const int64_t chunk = rows_per_chunk(weight_VW.size(0), chunk_rows);
  const Tensor targets = targets_N.contiguous();
  Tensor lse, picked, out;
  {
    const c10::NoGradGuard no_grad;
    lse = all_lse(x_NW, weight_VW, targets, chunk, picked);
    out = picked - lse;
  }
  return differentiable(out, {x_NW, weight_VW}, {x_NW, weight_VW, targets, lse},
                        [chunk](const BackwardCall& call) { return gradients(call, chunk); });
}

LogProbHead::LogProbHead(const Declarer& d, int64_t vocab, int64_t width, Init init)
    : weight_(d.param("weight", {vocab, width}, init, {Split::column})) {}

LogProbHead::LogProbHead(const Declarer& d, Param tied) : weight_(tied) { d.use(tied); }

Tensor LogProbHead::log_probs(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const {
  return linear_log_probs(x_NW, ctx[weight_], targets_N);
}

TargetScores LogProbHead::score(const Tensor& x_NW, const Tensor& targets_N, UnitContext& ctx) const {
  const c10::NoGradGuard no_grad;
  const Tensor weight = ctx[weight_];
  check(x_NW, weight, targets_N);
  Tensor picked, largest;
  const Tensor lse = all_lse(x_NW, weight, targets_N.contiguous(), rows_per_chunk(weight.size(0), 0), picked, &largest);
  return {picked - lse, (picked >= largest).to(lse.scalar_type())};
}

Tensor LogProbHead::logits(const Tensor& x_NW, UnitContext& ctx) const { return at::linear(x_NW, ctx[weight_]); }

}  // namespace loom
