// The chunked log-probabilities against log_softmax of all logits in float64: both ways of making gradients, equal and
// unequal gradients of rows, borders of chunks, sinks, what is counted and what a dry run allocates.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/error.h"
#include "core/nn/flops.h"
#include "core/nn/ops/log_probs.h"
#include "core/nn/ops/matmul.h"
#include "core/nn/ops/pieces.h"
#include "tests/core/nn/levels.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

constexpr int64_t kWidth = 20;

struct Inputs {
  Tensor x, weight, targets;
};

Inputs inputs(int64_t rows, int64_t vocab, at::ScalarType dtype) {
  at::manual_seed(21);
  return {at::randn({rows, kWidth}, at::kDouble).to(dtype).requires_grad_(),
          at::randn({vocab, kWidth}, at::kDouble).to(dtype).requires_grad_(), at::randint(vocab, {rows}, at::kLong)};
}

LogProbOptions options(HeadGradients gradients, int64_t chunk_rows) {
  LogProbOptions out;
  out.gradients = gradients;
  out.chunk_rows = chunk_rows;
  return out;
}

struct Result {
  Tensor value, dx, dweight;
};

Result reference(const Inputs& in, const Tensor& grad) {
  const Tensor x = in.x.detach().to(at::kDouble).requires_grad_();
  const Tensor weight = in.weight.detach().to(at::kDouble).requires_grad_();
  const Tensor value = at::log_softmax(at::mm(x, weight.t()), 1).gather(1, in.targets.unsqueeze(1)).squeeze(1);
  const auto grads = torch::autograd::grad({value}, {x, weight}, {grad.to(at::kDouble)});
  return {value.detach(), grads[0], grads[1]};
}

Result ours(const Inputs& in, const Tensor& grad, const LogProbOptions& how, GradientSink* sink = nullptr) {
  const Tensor value = linear_log_probs(in.x, Weight{in.weight, sink}, in.targets, how);
  const auto grads = torch::autograd::grad({value}, {in.x, in.weight}, {grad.to(value.scalar_type())}, {}, false, true);
  return {value.detach(), grads[0], grads[1]};
}

void expect_near(const Result& found, const Result& expected, double tolerance) {
  EXPECT_LE(relative_difference(found.value, expected.value), tolerance);
  EXPECT_LE(relative_difference(found.dx, expected.dx), tolerance);
  EXPECT_LE(relative_difference(found.dweight, expected.dweight), tolerance);
}

class LogProbs : public testing::TestWithParam<HeadGradients> {
 protected:
  ScopedPieces fused_{Pieces::fused};
};

TEST_P(LogProbs, AgreesWithLogSoftmaxOverBordersOfChunks) {
  at_every_level([] {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      for (const int64_t vocab : {2, 33, 300}) {
        const Inputs in = inputs(40, vocab, dtype);
        for (const Tensor& grad : {at::full({40}, -0.025), at::full({1}, -0.025).expand({40}), at::randn({40})}) {
          const Result expected = reference(in, grad);
          for (const int64_t chunk : {0, 1, 7, 8, 40, 64}) {
            expect_near(ours(in, grad, options(GetParam(), chunk)), expected, dtype == at::kDouble ? 1e-13 : 3e-6);
          }
        }
      }
    }
  });
}

TEST_P(LogProbs, HalfTypesAreSummedInFloat) {
  const Inputs in = inputs(90, 50, at::kBFloat16);
  for (const Tensor& grad : {at::full({90}, 0.25), at::randn({90})}) {
    const Result found = ours(in, grad, options(GetParam(), 11));
    EXPECT_EQ(found.value.scalar_type(), at::kFloat);
    EXPECT_EQ(found.dx.scalar_type(), at::kBFloat16);
    EXPECT_EQ(found.dweight.scalar_type(), at::kBFloat16);
    expect_near(found, reference(in, grad), 1e-2);
  }
}

TEST_P(LogProbs, OnlyWantedGradientsAreMade) {
  const Inputs in = inputs(30, 10, at::kDouble);
  const Tensor grad = at::randn({30}, at::kDouble);
  const Result expected = reference(in, grad);
  const Inputs frozen{in.x, in.weight.detach(), in.targets}, given{in.x.detach(), in.weight, in.targets};
  const LogProbOptions how = options(GetParam(), 7);
  const Tensor a = linear_log_probs(frozen.x, Weight{frozen.weight, nullptr}, in.targets, how);
  EXPECT_LE(relative_difference(torch::autograd::grad({a}, {in.x}, {grad})[0], expected.dx), 1e-13);
  const Tensor b = linear_log_probs(given.x, Weight{given.weight, nullptr}, in.targets, how);
  EXPECT_LE(relative_difference(torch::autograd::grad({b}, {in.weight}, {grad})[0], expected.dweight), 1e-13);
}

TEST_P(LogProbs, NoRowsGiveAGradientOfZero) {
  const Inputs in = inputs(0, 10, at::kFloat);
  const Result found = ours(in, at::zeros({0}), options(GetParam(), 0));
  EXPECT_EQ(found.value.size(0), 0);
  EXPECT_EQ(found.dweight.abs().sum().item<float>(), 0);
}

class OneSink : public GradientSink {
 public:
  GradientTarget target;
  int opened = 0;
  GradientTarget open() override {
    ++opened;
    const GradientTarget now = target;
    target.fresh = false;
    return now;
  }
};

TEST_P(LogProbs, TheWeightsGradientGoesIntoItsSink) {
  for (const auto& [dtype, master] : {std::pair(at::kDouble, at::kDouble), std::pair(at::kFloat, at::kFloat),
                                      std::pair(at::kBFloat16, at::kFloat), std::pair(at::kBFloat16, at::kBFloat16)}) {
    const double tolerance = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 3e-6 : 2e-2;
    const Inputs in = inputs(40, 30, dtype);
    for (const Tensor& grad : {at::full({40}, 0.5), at::randn({40})}) {
      const Result expected = reference(in, grad);
      OneSink sink;
      sink.target = {at::full({30, kWidth}, NAN, at::TensorOptions(master)), true};
      const Result once = ours(in, grad, options(GetParam(), 9), &sink);
      EXPECT_FALSE(once.dweight.defined());
      EXPECT_LE(relative_difference(sink.target.sum, expected.dweight), tolerance);
      // A tied table adds to the same memory; so does the next microbatch.
      ours(in, grad, options(GetParam(), 9), &sink);
      EXPECT_LE(relative_difference(sink.target.sum, 2 * expected.dweight), tolerance);
      EXPECT_EQ(sink.opened, 2);
    }
  }
}

TEST_P(LogProbs, ATargetThatDoesNotExistIsRefused) {
  Inputs in = inputs(3, 5, at::kFloat);
  for (const int64_t wrong : {-1, 5}) {
    in.targets[1] = wrong;
    EXPECT_THROW(linear_log_probs(in.x, Weight{in.weight, nullptr}, in.targets, options(GetParam(), 0)), InternalError);
  }
}

TEST_P(LogProbs, ExtremeLogitsStayFinite) {
  const Tensor x = (at::eye(3) * 3e4).requires_grad_(), weight = at::eye(3).requires_grad_();
  const Tensor targets = at::tensor({0, 0, 2}, at::kLong);
  const Tensor found = linear_log_probs(x, Weight{weight, nullptr}, targets, options(GetParam(), 0));
  EXPECT_EQ(found[0].item<float>(), 0);
  EXPECT_EQ(found[1].item<float>(), -3e4F);
  const auto grads = torch::autograd::grad({found.sum()}, {x, weight});
  EXPECT_TRUE(at::isfinite(grads[0]).all().item<bool>() && at::isfinite(grads[1]).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Ways, LogProbs, testing::Values(HeadGradients::in_forward, HeadGradients::in_backward));

TEST(LogProbsWays, GiveTheSameLogProbabilitiesToTheBit) {
  const ScopedPieces fused(Pieces::fused);
  at_every_level([] {
    const Inputs in = inputs(50, 77, at::kFloat);
    const Weight weight{in.weight, nullptr};
    EXPECT_TRUE(same_bits(linear_log_probs(in.x, weight, in.targets, options(HeadGradients::in_forward, 7)).detach(),
                          linear_log_probs(in.x, weight, in.targets, options(HeadGradients::in_backward, 7)).detach()));
  });
}

struct Counted : FlopSink {
  double products = 0, repeated = 0;
  void add_flops(double flops, bool /*attention*/, bool again) override { (again ? repeated : products) += flops; }
  void attends(const AttentionSpec& /*spec*/) override {}
};

TEST(LogProbsWays, CountThreeProductsOfTheModelAndWhatIsMadeAgain) {
  const ScopedPieces fused(Pieces::fused);
  const Products before = products_in_use();
  use_products(Products::own);
  const Inputs in = inputs(40, 30, at::kFloat);
  const double one = 2.0 * 40 * 30 * kWidth;
  const auto count = [&](HeadGradients way, const Tensor& grad) {
    Counted counted;
    const CountFlops scope(counted);
    ours(in, grad, options(way, 7));
    return std::pair(counted.products / one, counted.repeated / one);
  };
  const Tensor equal = at::ones({40}), unequal = at::arange(40, at::kFloat);
  EXPECT_EQ(count(HeadGradients::in_forward, equal), std::pair(3.0, 0.0));
  EXPECT_EQ(count(HeadGradients::in_forward, unequal), std::pair(3.0, 2.0));
  EXPECT_EQ(count(HeadGradients::in_backward, unequal), std::pair(3.0, 1.0));
  // A recomputed unit: only its logits are a repetition.
  Counted counted;
  {
    const CountFlops scope(counted);
    const ComputedAgain again;
    linear_log_probs(in.x, Weight{in.weight, nullptr}, in.targets, options(HeadGradients::in_forward, 7));
  }
  EXPECT_EQ(counted.products / one, 2);
  EXPECT_EQ(counted.repeated / one, 1);
  use_products(before);
}

TEST(LogProbsWays, ManyRowsPrepareTheirGradientsAndADryRunDoesTheSame) {
  const ScopedPieces fused(Pieces::fused);
  const Products before = products_in_use();
  use_products(Products::own);
  for (const int64_t rows : {100, 300}) {
    for (const bool dry : {false, true}) {
      Inputs in = inputs(rows, 30, at::kFloat);
      if (dry) {
        in = {in.x.detach().to(at::kMeta).requires_grad_(), in.weight.detach().to(at::kMeta).requires_grad_(),
              in.targets.to(at::kMeta)};
      }
      Counted counted;
      const CountFlops scope(counted);
      const Tensor value = linear_log_probs(in.x, in.weight, in.targets);
      torch::autograd::grad({value.sum()}, {in.x, in.weight});
      EXPECT_EQ(counted.repeated > 0, rows == 100);
    }
  }
  use_products(before);
}

TEST(LogProbsComposed, IsTheSameFunction) {
  const Inputs in = inputs(40, 30, at::kDouble);
  const Tensor grad = at::randn({40}, at::kDouble);
  const ScopedPieces composed(Pieces::composed);
  expect_near(ours(in, grad, {}), reference(in, grad), 1e-13);
}

}  // namespace
}  // namespace loom::test
