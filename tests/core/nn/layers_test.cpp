// Layers against the formulas of ATen, and the promises about bits: norms do not see neighbouring rows, threads change
// nothing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/base/error.h"
#include "core/nn/embedding.h"
#include "core/nn/logprob_head.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/rotary.h"
#include "core/nn/self_attention.h"
#include "tests/core/nn/levels.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

template <class Norm>
Tensor norm_formula(const Tensor& x, const std::vector<Tensor>& params, double eps) {
  if (params.size() == 2) return at::layer_norm(x, {x.size(1)}, params[0], params[1], eps);
  return x * (x.pow(2).mean(1, true) + eps).rsqrt() * params[0];
}

template <class Norm>
void check_norm() {
  at::manual_seed(1);
  for (const int64_t width : {7, 48, 100}) {
    BoundLayer layer;
    const Norm norm(layer.declarer(), width, 1e-5);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      layer.bind(dtype);
      UnitContext ctx = layer.context();
      const Tensor x = (at::randn({150, width}) * 3 + 1).to(dtype).requires_grad_(),
                   grad = at::randn({150, width}).to(dtype);
      const Tensor y = norm(x, ctx), expected = norm_formula<Norm>(x, layer.params(), 1e-5);
      const double tolerance = dtype == at::kDouble ? 1e-13 : 2e-6;
      EXPECT_LE(relative_difference(y, expected), tolerance);
      std::vector<Tensor> leaves{x};
      leaves.insert(leaves.end(), layer.params().begin(), layer.params().end());
      const auto found = torch::autograd::grad({y}, leaves, {grad}),
                 right = torch::autograd::grad({expected}, leaves, {grad});
      for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LE(relative_difference(found[i], right[i]), tolerance) << i;

      // Rows 40..49 alone: the same bits, forward and backward.
      const Tensor part = x.detach().narrow(0, 40, 10).clone().requires_grad_();
      const Tensor alone = norm(part, ctx);
      EXPECT_TRUE(same_bits(alone, y.narrow(0, 40, 10)));
      const auto dpart = torch::autograd::grad({alone}, {part}, {grad.narrow(0, 40, 10)});
      EXPECT_TRUE(same_bits(dpart[0], found[0].narrow(0, 40, 10)));
    }
  }
}

TEST(Norm, IsTheFormulaAndRowsAreIndependent) {
  at_every_level([] {
    check_norm<RmsNorm>();
    check_norm<LayerNorm>();
  });
}

TEST(Norm, ThreadsDoNotChangeAGradient) {
  BoundLayer layer;
  const LayerNorm norm(layer.declarer(), 200);
  layer.bind(at::kFloat);
  UnitContext ctx = layer.context();
  const Tensor x = at::randn({1000, 200}), grad = at::randn({1000, 200});
  const int threads = at::get_num_threads();
  std::vector<std::vector<Tensor>> found;
  for (const int n : {1, 3}) {
    at::set_num_threads(n);
    found.push_back(torch::autograd::grad({norm(x, ctx)}, layer.params(), {grad}));
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(same_bits(found[0][0], found[1][0]));
  EXPECT_TRUE(same_bits(found[0][1], found[1][1]));
}

TEST(Norm, HalfTypesAccumulateInFloat) {
  BoundLayer layer;
  const RmsNorm norm(layer.declarer(), 300);
  layer.bind(at::kBFloat16);
  UnitContext ctx = layer.context();
  const Tensor x = (at::randn({4, 300}) * 100).to(at::kBFloat16);
  const Tensor wide = norm_formula<RmsNorm>(x.to(at::kDouble), {layer.params()[0].to(at::kDouble)}, 1e-6);
  const Tensor y = norm(x, ctx);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LE((y.to(at::kDouble) - wide).abs().div(wide.abs() + 1e-9).max().item<double>(), 1.0 / 256 + 1e-6);
}

TEST(Rotary, TurnsHalfSplitPairs) {
  at_every_level([] {
    BoundLayer layer;
    const Rotary rotary(6, 100.0);
    Segments rows;
    rows.append(2, {1, 0, 0}, {3, 1000});
    layer.partitions()[""] = rows;
    UnitContext ctx = layer.context();
    const Tensor x = at::randn({2, 12}, at::kDouble), y = rotary(x, ctx);
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t j = 0; j < 3; ++j) {
          const double angle =
              static_cast<double>(rows.positions[r]) * std::pow(100.0, -2.0 * static_cast<double>(j) / 6.0);
          const double a = x[r][h * 6 + j].item<double>(), b = x[r][h * 6 + j + 3].item<double>();
          EXPECT_NEAR(y[r][h * 6 + j].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-12);
          EXPECT_NEAR(y[r][h * 6 + j + 3].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-12);
        }
      }
    }
  });
}

TEST(Rotary, RefusesOddHeads) { EXPECT_THROW(Rotary(5), PluginError); }

TEST(SwiGlu, IsTheFormulaEvenWhereTheSigmoidEnds) {
  at_every_level([] {
    BoundLayer layer;
    const SwiGlu mlp(layer.declarer(), 8, 21);
    layer.bind(at::kFloat);
    ASSERT_EQ(layer.declarations().params[0].parts.size(), 2u);
    UnitContext ctx = layer.context();
    const Tensor x = at::randn({30, 8}) * at::logspace(-2, 3, 30).unsqueeze(1);
    const std::vector<Tensor> halves = at::matmul(x, layer.params()[0].t()).chunk(2, 1);
    const Tensor expected = at::matmul(at::silu(halves[0]) * halves[1], layer.params()[1].t());
    const Tensor y = mlp(x, ctx);
    EXPECT_LE(((y - expected).norm(2, 1) / expected.norm(2, 1)).max().item<float>(), 5e-6F);
  });
}

TEST(SelfAttention, NamesAndPartsOfTheFusedProjection) {
  BoundLayer layer;
  SelfAttentionOptions options;
  options.width = 32;
  options.heads = 4;
  options.kv_heads = 2;
  options.qk_norm = true;
  options.out_bias = false;
  const SelfAttention attention(layer.declarer().child("attention"), options);
  std::vector<std::string> names;
  for (const ParamDecl& p : layer.declarations().params) names.push_back(p.name);
  const std::string prefix = "test.unit.attention.";
  EXPECT_EQ(names, (std::vector<std::string>{prefix + "qkv.weight", prefix + "qkv.bias", prefix + "out.weight",
                                             prefix + "q_norm.weight", prefix + "k_norm.weight"}));
  const ParamDecl& qkv = layer.declarations().params[0];
  EXPECT_EQ(qkv.shape, (std::vector<int64_t>{64, 32}));
  ASSERT_EQ(qkv.parts.size(), 3u);
  EXPECT_EQ(qkv.parts[1].name, "k");
  EXPECT_EQ(qkv.parts[1].rows, 16);
  EXPECT_EQ(qkv.parts[1].block, 8);
  EXPECT_EQ(qkv.parts[1].split, Split::column);
  EXPECT_EQ(layer.declarations().params[2].split, Split::row);
}

TEST(PositionEmbedding, RefusesPositionsOutsideItsGrid) {
  BoundLayer layer;
  const PositionEmbedding table(layer.declarer(), {2, 2}, 3);
  layer.bind(at::kFloat);
  layer.partitions()[""] = segments_of({5});
  UnitContext ctx = layer.context();
  EXPECT_THROW(table(at::zeros({5, 3}), ctx), PluginError);
}

struct Head {
  Tensor x, weight, targets, grad;
};

Head random_head(int64_t rows, int64_t vocab, at::ScalarType dtype) {
  at::manual_seed(3);
  return {at::randn({rows, 24}).to(dtype).requires_grad_(), at::randn({vocab, 24}).to(dtype).requires_grad_(),
          at::randint(0, vocab, {rows}, at::kLong), at::randn({rows}).to(dtype)};
}

TEST(LogProbHead, IsLogSoftmaxWhateverTheChunk) {
  at_every_level([] {
    for (const int64_t vocab : {3, 33, 300}) {
      for (const int64_t chunk : {0, 1, 7}) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          const Head h = random_head(40, vocab, dtype);
          const Tensor found = linear_log_probs(h.x, h.weight, h.targets, chunk);
          const Tensor all = at::log_softmax(at::matmul(h.x, h.weight.t()), 1);
          const Tensor expected = all.gather(1, h.targets.unsqueeze(1)).squeeze(1);
          const double tolerance = dtype == at::kDouble ? 1e-13 : 3e-6;
          EXPECT_LE(relative_difference(found, expected), tolerance);
          const auto a = torch::autograd::grad({found}, {h.x, h.weight}, {h.grad});
          const auto b = torch::autograd::grad({expected}, {h.x, h.weight}, {h.grad});
          EXPECT_LE(relative_difference(a[0], b[0]), tolerance);
          EXPECT_LE(relative_difference(a[1], b[1]), tolerance);
        }
      }
    }
  });
}

TEST(LogProbHead, NoRowsNoTrouble) {
  const Head h = random_head(0, 10, at::kFloat);
  const Tensor found = linear_log_probs(h.x, h.weight, h.targets);
  EXPECT_EQ(found.size(0), 0);
  const auto grads = torch::autograd::grad({found}, {h.x, h.weight}, {at::zeros({0})});
  EXPECT_EQ(grads[1].abs().sum().item<float>(), 0);
}

TEST(LogProbHead, GivesFloatForHalfTypesAndOnlyTheGradientsWanted) {
  Head h = random_head(20, 50, at::kBFloat16);
  h.weight = h.weight.detach();  // frozen
  const Tensor found = linear_log_probs(h.x, h.weight, h.targets);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  const Tensor wide = at::log_softmax(at::matmul(h.x.detach().to(at::kDouble), h.weight.to(at::kDouble).t()), 1);
  EXPECT_LE(relative_difference(found, wide.gather(1, h.targets.unsqueeze(1)).squeeze(1)), 2e-2);
  EXPECT_EQ(torch::autograd::grad({found.sum()}, {h.x})[0].scalar_type(), at::kBFloat16);
}

TEST(LogProbHead, ExtremeLogits) {
  const Tensor x = at::eye(3) * 3e4, weight = at::eye(3), targets = at::tensor({0, 0, 2}, at::kLong);
  const Tensor found = linear_log_probs(x, weight, targets);
  EXPECT_EQ(found[0].item<float>(), 0);
  EXPECT_EQ(found[1].item<float>(), -3e4F);
  EXPECT_THROW(linear_log_probs(x, weight, at::tensor({0, 3, 2}, at::kLong)), InternalError);
}

}  // namespace
}  // namespace loom::test
