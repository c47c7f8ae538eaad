// Every fused piece with its gradients, on both devices, from the same numbers.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>

#include "core/base/error.h"
#include "core/nn/logprob_head.h"
#include "core/nn/ops/embedding.h"
#include "core/nn/ops/linear.h"
#include "core/nn/ops/matmul.h"
#include "core/nn/ops/norm.h"
#include "core/nn/ops/pieces.h"
#include "core/nn/varlen_attention.h"
#include "tests/gpu/compare.h"

namespace loom::gpu {
namespace {

using Tensors = std::vector<Tensor>;
using Piece = std::function<Tensors(const Tensors&)>;

struct Limits {
  double value = 0, gradient = 0;
};

// Sums of a few hundred terms; half types keep eight bits.
Limits limits_of(at::ScalarType type) { return type == at::kFloat ? Limits{2e-5, 1e-4} : Limits{2e-2, 4e-2}; }

struct Run {
  Tensors outputs, gradients;
};

Run run_piece(const Piece& piece, const Tensors& inputs, const Tensors& output_gradients) {
  Run run;
  Tensors leaves;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.is_floating_point()) leaves.push_back(input.requires_grad_(true));
  }
  run.outputs = piece(inputs);
  if (output_gradients.empty()) return run;
  run.gradients = torch::autograd::grad(run.outputs, leaves, output_gradients, false, false, true);
  return run;
}

// The outputs' gradients are drawn here, so that both sides get the same ones.
void check(Compare& compare, const std::string& name, at::ScalarType type, const Tensors& inputs, const Piece& piece,
           bool differentiable = true) {
  Tensors mine, others;
  for (const Tensor& input : inputs) {
    mine.push_back(input.defined() ? input.detach().clone() : input);
    others.push_back(compare.there(input));
  }
  Tensors here, there;
  const Run first = run_piece(piece, mine, {});
  for (const Tensor& output : differentiable ? first.outputs : Tensors{}) {
    here.push_back(at::randn(output.sizes()).to(output.scalar_type()));
    there.push_back(compare.there(here.back()));
  }
  const Run a = run_piece(piece, mine, here);
  const Run b = [&] {
    std::optional<ScopedPieces> pieces;
    if (compare.composed()) pieces.emplace(Pieces::composed);
    return run_piece(piece, others, there);
  }();
  const Limits limits = limits_of(type);
  const std::string title = concat(name, ", ", c10::toString(type));
  compare.begin(title, limits.value);
  for (size_t i = 0; i < a.outputs.size(); ++i) compare.same(concat("output ", i), a.outputs[i], b.outputs[i]);
  compare.end();
  if (!differentiable) return;
  compare.begin(title + ", gradients", limits.gradient);
  for (size_t i = 0; i < a.gradients.size(); ++i) compare.same(concat("gradient ", i), a.gradients[i], b.gradients[i]);
  compare.end();
}

struct Attention {
  const char* name;
  VarlenShape shape;
  std::vector<AttentionRange> ranges;
  int64_t q_rows, k_rows;
};

std::vector<Attention> attention_cases() {
  const std::vector<AttentionRange> packed{{0, 1, 0, 1}, {1, 7, 1, 7}, {8, 31, 8, 31}, {39, 200, 39, 200}};
  const std::vector<AttentionRange> ragged{{0, 9, 4, 4}, {12, 5, 8, 40}, {17, 0, 48, 3}, {20, 6, 51, 0}};
  std::vector<Attention> out;
  for (const int64_t width : {16, 64, 128, 256}) {
    out.push_back({"packed, full", {4, 4, width, false, 0.2, 0}, packed, 239, 239});
    out.push_back({"packed, causal, grouped heads", {6, 2, width, true, 0.2, 0}, packed, 239, 239});
  }
  out.push_back({"packed, causal, window of 5", {4, 1, 32, true, 0.2, 5}, packed, 239, 239});
  out.push_back({"packed, window of 5", {4, 4, 32, false, 0.2, 5}, packed, 239, 239});
  out.push_back({"heads of 36", {3, 3, 36, true, 0.2, 0}, packed, 239, 239});
  out.push_back({"ragged, full", {4, 2, 32, false, 0.2, 0}, ragged, 30, 60});
  out.push_back({"ragged, causal", {4, 2, 32, true, 0.2, 0}, ragged, 30, 60});
  return out;
}

void check_attention(Compare& compare, at::ScalarType type) {
  for (const Attention& a : attention_cases()) {
    const auto rows = [&](int64_t n, int64_t heads) { return at::randn({n, heads * a.shape.head_dim}).to(type); };
    check(compare, concat("attention ", a.name, ", width ", a.shape.head_dim), type,
          {rows(a.q_rows, a.shape.heads), rows(a.k_rows, a.shape.kv_heads), rows(a.k_rows, a.shape.kv_heads)},
          [&](const Tensors& x) {
            return Tensors{varlen_attention(x[0], x[1], x[2], a.ranges, a.shape, nullptr, nullptr)};
          });
    // Kept results, as recompute and divided attention use them.
    check(compare, concat("attention ", a.name, ", width ", a.shape.head_dim, ", kept"), type,
          {rows(a.q_rows, a.shape.heads), rows(a.k_rows, a.shape.kv_heads), rows(a.k_rows, a.shape.kv_heads)},
          [&](const Tensors& x) {
            const VarlenResult kept =
                varlen_attention_forward(x[0].detach(), x[1].detach(), x[2].detach(), a.ranges, a.shape);
            return Tensors{varlen_attention(x[0], x[1], x[2], a.ranges, a.shape, &kept, nullptr)};
          });
    check(
        compare, concat("attention ", a.name, ", width ", a.shape.head_dim, ", log-sum-exp"), at::kFloat,
        {rows(a.q_rows, a.shape.heads).to(at::kFloat), rows(a.k_rows, a.shape.kv_heads).to(at::kFloat),
         rows(a.k_rows, a.shape.kv_heads).to(at::kFloat)},
        [&](const Tensors& x) { return Tensors{varlen_attention_forward(x[0], x[1], x[2], a.ranges, a.shape).lse}; },
        false);
  }
}

void check_linear(Compare& compare, at::ScalarType type) {
  constexpr int64_t kRows = 77, kIn = 96, kOut = 160;
  const auto random = [&](at::IntArrayRef sizes, double scale = 1) { return (at::randn(sizes) * scale).to(type); };
  const Tensor x = random({kRows, kIn}), weight = random({kOut, kIn}, 0.1), bias = random({kOut}),
               more = random({kRows, kOut});
  check(compare, "linear", type, {x, weight}, [](const Tensors& t) { return Tensors{linear(t[0], {t[1]})}; });
  check(compare, "linear, bias and residual", type, {x, weight, bias, more},
        [](const Tensors& t) { return Tensors{linear(t[0], {t[1]}, {t[2]}, t[3])}; });
  for (const Gelu gelu : {Gelu::exact, Gelu::tanh}) {
    check(compare, gelu == Gelu::exact ? "gelu, linear" : "gelu (tanh), linear", type, {x, weight, bias, more},
          [gelu](const Tensors& t) { return Tensors{gelu_linear(t[0], gelu, {t[1]}, {t[2]}, t[3])}; });
  }
  check(compare, "swiglu, linear", type, {random({kRows, 2 * kIn}), weight, more},
        [](const Tensors& t) { return Tensors{swiglu_linear(t[0], {t[1]}, {}, t[2])}; });
  check(
      compare, "matmul", type, {x, weight},
      [](const Tensors& t) { return Tensors{loom::matmul(t[0].detach(), t[1].detach().t())}; }, false);
}

void check_rows(Compare& compare, at::ScalarType type) {
  constexpr int64_t kRows = 77, kWidth = 96, kVocab = 1000;
  const auto random = [&](at::IntArrayRef sizes, double scale = 1) { return (at::randn(sizes) * scale).to(type); };
  const Tensor x = random({kRows, kWidth}), delta = random({kRows, kWidth}), weight = random({kWidth}),
               bias = random({kWidth});
  check(compare, "rms norm", type, {x, weight}, [](const Tensors& t) { return Tensors{norm(t[0], {t[1]}, {}, 1e-6)}; });
  check(compare, "layer norm", type, {x, weight, bias},
        [](const Tensors& t) { return Tensors{norm(t[0], {t[1]}, {t[2]}, 1e-6)}; });
  check(compare, "rms norm after a sum", type, {x, delta, weight}, [](const Tensors& t) {
    const AddedNorm both = add_norm(t[0], t[1], {t[2]}, {}, 1e-6);
    return Tensors{both.sum, both.normed};
  });
  const Tensor ids = at::randint(kVocab, {kRows}, at::kLong), table = random({kVocab, kWidth}, 0.3);
  check(compare, "embedding", type, {table, ids, x},
        [](const Tensors& t) { return Tensors{embedding({t[0]}, t[1], t[2])}; });
  check(compare, "log-probabilities", type, {x, table, ids},
        [](const Tensors& t) { return Tensors{linear_log_probs(t[0], t[1], t[2])}; });
  check(compare, "log-probabilities in chunks", type, {x, table, ids},
        [](const Tensors& t) { return Tensors{linear_log_probs(t[0], t[1], t[2], 32)}; });
}

}  // namespace

void check_pieces(Compare& compare, at::ScalarType type) {
  at::manual_seed(11);
  check_attention(compare, type);
  check_linear(compare, type);
  check_rows(compare, type);
}

}  // namespace loom::gpu
