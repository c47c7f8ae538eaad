#include "core/nn/ops/log_probs.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/nn/differentiable.h"
#include "core/nn/flops.h"
#include "core/nn/kernels/row_threads.h"
#include "core/nn/ops/matmul.h"
#include "core/nn/ops/parameter_gradients.h"
#include "core/nn/ops/pieces.h"

namespace loom {
namespace {

constexpr int64_t kChunkElements = int64_t{4} << 20;
// The weight's gradient, kept from the forward to the backward, costs writing and scaling its memory once more: paid
// back by the product that it saves when there are this many rows. A gradient of more than 256 MB is not kept.
constexpr int64_t kFewestRows = 256;
constexpr int64_t kLargestGradient = int64_t{1} << 26;

void check(const Tensor& x, const Tensor& weight, const Tensor& targets) {
  LOOM_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), "head: rows ", x.sizes(), ", weight ",
             weight.sizes());
  LOOM_CHECK(targets.dim() == 1 && targets.size(0) == x.size(0) && targets.scalar_type() == at::kLong, "head: targets ",
             targets.sizes(), " of ", targets.scalar_type(), " for ", x.size(0), " rows");
  if (!targets.is_cpu()) return;
  const Tensor dense = targets.contiguous();
  const auto* ids = dense.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < dense.size(0); ++i) {
    LOOM_CHECK(ids[i] >= 0 && ids[i] < weight.size(0), "head: target ", ids[i], " with a vocabulary of ",
               weight.size(0));
  }
}

// Rows, weight and targets of one call, and the memory that one chunk's logits take.
class Chunks {
 public:
  Chunks(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_rows)
      : x_(readable(x)),
        weight_(readable(weight)),
        targets_(targets),
        rows_(std::min(x.size(0), chunk_rows > 0 ? chunk_rows : usual_rows(weight.size(0)))),
        buffer_(at::empty({rows_, weight.size(0)}, x.options().dtype(rows::work_dtype(x)))) {}

  // Calls f(first row, rows) for every chunk.
  template <class F>
  void each(const F& f) const {
    for (int64_t begin = 0; begin < x_.size(0); begin += rows_) f(begin, std::min(rows_, x_.size(0) - begin));
  }

  // The logits of a chunk in work dtype, in the buffer.
  Tensor logits(int64_t begin, int64_t count) const {
    Tensor out = buffer_.narrow(0, 0, count);
    const Tensor x = x_.narrow(0, begin, count);
    if (x.scalar_type() == out.scalar_type()) {
      matmul_into(out, x, weight_.t());
    } else {
      out.copy_(loom::matmul(x, weight_.t()));
    }
    return out;
  }

  Tensor targets(int64_t begin, int64_t count) const { return targets_.narrow(0, begin, count); }

  // Gradients of a chunk's logits to gradients of its rows and, added, of the weight (`first` = overwrite).
  void products(const Tensor& dlogits, int64_t begin, const Tensor& dx, const Tensor& dweight, bool first) const {
    const int64_t count = dlogits.size(0);
    const Tensor narrow = dlogits.to(x_.scalar_type());
    if (dx.defined()) matmul_into(dx.narrow(0, begin, count), narrow, weight_);
    if (!dweight.defined()) return;
    const Tensor x = x_.narrow(0, begin, count);
    if (dweight.scalar_type() == x.scalar_type()) {
      matmul_into(dweight, narrow.t(), x, !first);
      return;
    }
    // Half types: chunks are summed in float. add_ would widen on CPU by itself, unseen by a dry run.
    const Tensor part = loom::matmul(narrow.t(), x).to(dweight.scalar_type());
    if (first) {
      Tensor(dweight).copy_(part);
    } else {
      Tensor(dweight).add_(part);
    }
  }

 private:
  static int64_t usual_rows(int64_t vocab) {
    return std::clamp<int64_t>(kChunkElements / std::max<int64_t>(vocab, 1), 32, 8192);
  }

  Tensor x_, weight_, targets_;
  int64_t rows_;
  Tensor buffer_;
};

bool has_kernels(const Tensor& x) { return x.is_cpu() || x.is_meta(); }

// Calls f(T, begin, end) for shares of the logits' rows.
template <class F>
void over_rows(const Tensor& logits, const F& f) {
  rows::dispatch(logits, [&](auto zero) {
    rows::parallel(logits.size(0), logits.size(1), [&](int64_t begin, int64_t end) { f(zero, begin, end); });
  });
}

// Log-sum-exp and the targets' logits.
void read_chunk(const Tensor& logits, const Tensor& targets, Tensor lse, Tensor picked) {
  if (!has_kernels(logits)) {
    at::logsumexp_out(lse, logits, {1});
    picked.copy_(logits.gather(1, targets.unsqueeze(1)).squeeze(1));
    return;
  }
  over_rows(logits, [&](auto zero, int64_t begin, int64_t end) {
    using T = decltype(zero);
    const kernels::Rows<const T> x = rows::read<T>(logits);
    kernels::kernel_set<T>().row_lse(x, lse.mutable_data_ptr<T>(), logits.size(1), begin, end);
    const auto* ids = targets.const_data_ptr<int64_t>();
    T* out = picked.mutable_data_ptr<T>();
    for (int64_t r = begin; r < end; ++r) out[r] = x.data[r * x.stride + ids[r]];
  });
}

// The same, and the logits become the gradients of the sum of log-probabilities.
void read_and_differentiate(const Tensor& logits, const Tensor& targets, const Tensor& lse, const Tensor& picked) {
  over_rows(logits, [&](auto zero, int64_t begin, int64_t end) {
    using T = decltype(zero);
    kernels::kernel_set<T>().logprob_both(rows::write<T>(logits), lse.mutable_data_ptr<T>(),
                                          picked.mutable_data_ptr<T>(), targets.const_data_ptr<int64_t>(),
                                          logits.size(1), begin, end);
  });
}

// In place: logits become grad * (onehot(target) - softmax).
void differentiate(Tensor logits, const Tensor& targets, const Tensor& lse, const Tensor& grad) {
  if (!has_kernels(logits)) {
    logits.sub_(lse.unsqueeze(1)).exp_().mul_(grad.neg().unsqueeze(1));
    logits.scatter_add_(1, targets.unsqueeze(1), grad.unsqueeze(1));
    return;
  }
  over_rows(logits, [&](auto zero, int64_t begin, int64_t end) {
    using T = decltype(zero);
    kernels::kernel_set<T>().logprob_backward(rows::write<T>(logits), lse.const_data_ptr<T>(),
                                              targets.const_data_ptr<int64_t>(), grad.const_data_ptr<T>(),
                                              logits.size(1), begin, end);
  });
}

// The gradient that every row has, if they are equal. A dry run knows no values and plans the usual case.
std::optional<double> common_gradient(const Tensor& grad) {
  if (grad.is_meta()) return 1.0;
  if (grad.size(0) == 0) return 0.0;
  const auto first = grad[0].item<double>();
  if (grad.stride(0) == 0) return first;
  return at::equal(grad, grad[0].expand_as(grad)) ? std::optional<double>(first) : std::nullopt;
}

// Saved tensors of both ways.
enum Saved : size_t { kX, kWeight, kTargets, kLse, kDx, kDweight, kForeign };

// The same where targets of `foreign` rows are 0 and mean none.
void differentiate_part(const Tensor& logits, const Tensor& targets, const Tensor& lse, const Tensor& grad,
                        const Tensor& foreign) {
  const Tensor first = (logits.select(1, 0) - lse).exp_().mul_(grad).neg_();
  differentiate(logits, targets, lse, grad);
  const Tensor column = logits.select(1, 0);
  column.copy_(at::where(foreign, first, column));
}

Tensor weight_gradient_of_zero(GradientSink* sink, const Tensor& weight) {
  return sink == nullptr ? at::zeros(weight.sizes(), weight.options()) : Tensor();
}

// The logits are made again, chunk by chunk. `repeated` = so was the weight's gradient.
std::vector<Tensor> late_gradients(const BackwardCall& call, GradientSink* sink, int64_t chunk_rows, bool wants_x,
                                   bool repeated) {
  const Tensor &x = call.saved[kX], &weight = call.saved[kWeight], &lse = call.saved[kLse];
  const Tensor grad = call.grad.to(lse.scalar_type()).contiguous();
  Tensor dx;
  if (wants_x) dx = at::empty(x.sizes(), x.options());
  if (x.size(0) == 0) return {dx, call.needs[1] ? weight_gradient_of_zero(sink, weight) : Tensor()};
  const Chunks chunks(x, weight, call.saved[kTargets], chunk_rows);
  const auto run = [&](const Tensor& dweight, bool fresh) {
    chunks.each([&](int64_t begin, int64_t count) {
      const Tensor dlogits = [&] {
        const ComputedAgain again;
        return chunks.logits(begin, count);
      }();
      const Tensor targets = chunks.targets(begin, count), sums = lse.narrow(0, begin, count);
      if (call.saved.size() > kForeign) {
        differentiate_part(dlogits, targets, sums, grad.narrow(0, begin, count),
                           call.saved[kForeign].narrow(0, begin, count));
      } else {
        differentiate(dlogits, targets, sums, grad.narrow(0, begin, count));
      }
      const ComputedAgain again(repeated);
      chunks.products(dlogits, begin, dx, dweight, begin == 0 && fresh);
    });
  };
  if (!call.needs[1]) {
    run(Tensor(), false);
    return {dx, Tensor()};
  }
  const Tensor dweight = gradient_into(sink, weight.sizes(), weight.options().dtype(lse.scalar_type()), run);
  return {dx, dweight.defined() ? dweight.to(weight.scalar_type()) : dweight};
}

// What the forward prepared, times the gradient. A row's own gradient scales its dx whatever the others are; the
// weight's gradient needs a common one.
std::vector<Tensor> early_gradients(const BackwardCall& call, GradientSink* sink, int64_t chunk_rows) {
  const Tensor &weight = call.saved[kWeight], &lse = call.saved[kLse];
  const std::optional<double> common = common_gradient(call.grad);
  Tensor dx;
  if (call.needs[0]) {
    const Tensor& unit = call.saved[kDx];
    dx = common ? at::mul(unit, *common)
                : at::mul(unit, call.grad.to(lse.scalar_type()).unsqueeze(1)).to(unit.scalar_type());
  }
  if (!call.needs[1]) return {dx, Tensor()};
  if (!common) return {dx, late_gradients(call, sink, chunk_rows, false, true)[1]};
  const Tensor& unit = call.saved[kDweight];
  const Tensor dweight = gradient_into(sink, unit.sizes(), unit.options(), [&](const Tensor& sum, bool fresh) {
    Tensor out = sum;
    if (fresh) {
      at::mul_out(out, unit, at::scalar_tensor(*common, unit.options()));
    } else {
      out.add_(unit, *common);
    }
  });
  return {dx, dweight.defined() ? dweight.to(weight.scalar_type()) : dweight};
}

Tensor composed_logits(const Tensor& x, const Tensor& weight) { return at::linear(x, weight).to(rows::work_dtype(x)); }

Tensor composed(const Tensor& logits, const Tensor& targets) {
  return at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
}

// By shapes only, so that a dry run goes the same way. On other devices a look at the gradients would wait for the
// device.
bool in_forward(const Tensor& x, const Tensor& weight, HeadGradients asked) {
  if (asked != HeadGradients::automatic) return asked == HeadGradients::in_forward && has_kernels(x);
  return has_kernels(x) && x.size(0) >= kFewestRows && weight.numel() <= kLargestGradient;
}

}  // namespace

Tensor linear_log_probs(const Tensor& x_NW, const Weight& weight_VW, const Tensor& targets_N,
                        const LogProbOptions& options) {
  const Tensor& weight = weight_VW.value;
  check(x_NW, weight, targets_N);
  if (backend_of(x_NW) == Backend::composed) return composed(composed_logits(x_NW, weight), targets_N);
  RECORD_FUNCTION("loom::log_probs", std::vector<c10::IValue>{});
  const Tensor targets = targets_N.contiguous();
  const bool recorded = wants_gradient({x_NW, weight});
  const bool early = recorded && x_NW.size(0) > 0 && in_forward(x_NW, weight, options.gradients);
  Tensor lse, out, dx, dweight;
  {
    const c10::NoGradGuard no_grad;
    const at::ScalarType work = rows::work_dtype(x_NW);
    lse = at::empty({x_NW.size(0)}, x_NW.options().dtype(work));
    const Tensor picked = at::empty_like(lse);
    if (early && x_NW.requires_grad()) dx = at::empty(x_NW.sizes(), x_NW.options());
    if (early && weight.requires_grad()) dweight = at::empty(weight.sizes(), weight.options().dtype(work));
    const Chunks chunks(x_NW, weight, targets, options.chunk_rows);
    chunks.each([&](int64_t begin, int64_t count) {
      const Tensor logits = chunks.logits(begin, count), ids = chunks.targets(begin, count);
      const Tensor lse_part = lse.narrow(0, begin, count), picked_part = picked.narrow(0, begin, count);
      if (!early) return read_chunk(logits, ids, lse_part, picked_part);
      read_and_differentiate(logits, ids, lse_part, picked_part);
      const ComputedFirst first;
      chunks.products(logits, begin, dx, dweight, begin == 0);
    });
    out = picked - lse;
  }
  return differentiable(out, {x_NW, weight}, {x_NW, weight, targets, lse, dx, dweight},
                        [early, chunk = options.chunk_rows, sink = weight_VW.sink](const BackwardCall& call) {
                          RECORD_FUNCTION("loom::log_probs_backward", std::vector<c10::IValue>{});
                          const c10::NoGradGuard no_grad;
                          return early ? early_gradients(call, sink, chunk)
                                       : late_gradients(call, sink, chunk, call.needs[0], false);
                        });
}

Tensor linear_log_probs(const Tensor& x_NW, const Tensor& weight_VW, const Tensor& targets_N, int64_t chunk_rows) {
  LogProbOptions options;
  options.chunk_rows = chunk_rows;
  return linear_log_probs(x_NW, Weight{weight_VW, nullptr}, targets_N, options);
}

Tensor linear_log_probs_part(const Tensor& x_NW, const Weight& weight_VW, const Tensor& targets_N,
                             const CombineParts& combine) {
  const Tensor& weight = weight_VW.value;
  const Tensor foreign = targets_N.lt(0), targets = targets_N.clamp_min(0).contiguous();
  check(x_NW, weight, targets);
  Tensor lse, picked;
  {
    const c10::NoGradGuard no_grad;
    lse = at::empty({x_NW.size(0)}, x_NW.options().dtype(rows::work_dtype(x_NW)));
    picked = at::empty_like(lse);
    const Chunks chunks(x_NW, weight, targets, 0);
    chunks.each([&](int64_t begin, int64_t count) {
      read_chunk(chunks.logits(begin, count), chunks.targets(begin, count), lse.narrow(0, begin, count),
                 picked.narrow(0, begin, count));
    });
    picked.masked_fill_(foreign, 0);
    combine(lse, picked);
  }
  return differentiable(picked - lse, {x_NW, weight}, {x_NW, weight, targets, lse, Tensor(), Tensor(), foreign},
                        [sink = weight_VW.sink](const BackwardCall& call) {
                          const c10::NoGradGuard no_grad;
                          return late_gradients(call, sink, 0, call.needs[0], false);
                        });
}

TargetScores linear_scores(const Tensor& x_NW, const Tensor& weight_VW, const Tensor& targets_N) {
  const c10::NoGradGuard no_grad;
  check(x_NW, weight_VW, targets_N);
  if (backend_of(x_NW) == Backend::composed) {
    const Tensor logits = composed_logits(x_NW, weight_VW);
    const Tensor picked = logits.gather(1, targets_N.unsqueeze(1)).squeeze(1);
    return {composed(logits, targets_N), (picked >= logits.amax(1)).to(logits.scalar_type())};
  }
  RECORD_FUNCTION("loom::log_probs", std::vector<c10::IValue>{});
  Tensor lse = at::empty({x_NW.size(0)}, x_NW.options().dtype(rows::work_dtype(x_NW)));
  Tensor picked = at::empty_like(lse), largest = at::empty_like(lse);
  const Chunks chunks(x_NW, weight_VW, targets_N.contiguous(), 0);
  chunks.each([&](int64_t begin, int64_t count) {
    const Tensor logits = chunks.logits(begin, count);
    read_chunk(logits, chunks.targets(begin, count), lse.narrow(0, begin, count), picked.narrow(0, begin, count));
    Tensor part = largest.narrow(0, begin, count);
    at::amax_out(part, logits, {1});
  });
  return {picked - lse, (picked >= largest).to(lse.scalar_type())};
}

}  // namespace loom
