// linear, swiglu_linear and gelu_linear against their compositions.
#include "core/nn/ops/linear.h"

#include "tests/core/nn/levels.h"
#include "tests/core/nn/piece_check.h"

namespace loom::test {
namespace {

enum class Kind { plain = 1, swiglu, gelu, gelu_tanh };

Tensor call(Kind kind, const Tensor& x, const Weight& weight, const Weight& bias, const Tensor& residual) {
  switch (kind) {
    case Kind::swiglu:
      return swiglu_linear(x, weight, bias, residual);
    case Kind::gelu:
      return gelu_linear(x, Gelu::exact, weight, bias, residual);
    case Kind::gelu_tanh:
      return gelu_linear(x, Gelu::tanh, weight, bias, residual);
    case Kind::plain:
      break;
  }
  return linear(x, weight, bias, residual);
}

Piece piece_of(Kind kind, int64_t rows, int64_t in, int64_t out, bool bias, bool residual) {
  at::manual_seed(rows * 1000 + in * 10 + out);
  Piece piece;
  piece.inputs = {at::randn({rows, kind == Kind::swiglu ? 2 * in : in}, at::kDouble),
                  at::randn({out, in}, at::kDouble) / std::sqrt(static_cast<double>(in))};
  piece.is_parameter = {false, true};
  if (bias) {
    piece.inputs.push_back(at::randn({out}, at::kDouble));
    piece.is_parameter.push_back(true);
  }
  if (residual) {
    piece.inputs.push_back(at::randn({rows, out}, at::kDouble));
    piece.is_parameter.push_back(false);
  }
  piece.call = [kind, bias, residual](const std::vector<Weight>& x) {
    return std::vector<Tensor>{
        call(kind, x[0].value, x[1], bias ? x[2] : Weight{}, residual ? x.back().value : Tensor())};
  };
  return piece;
}

void check_kind(Kind kind) {
  at_every_level([kind] {
    for (const int64_t rows : row_counts()) {
      for (const auto& [in, out] : {std::pair<int64_t, int64_t>{16, 33}, {65, 16}, {129, 47}, {513, 101}}) {
        for (const bool bias : {false, true}) {
          for (const bool residual : {false, true}) {
            SCOPED_TRACE(::testing::Message() << rows << " rows, " << in << " to " << out << (bias ? ", bias" : "")
                                              << (residual ? ", residual" : ""));
            check_piece(piece_of(kind, rows, in, out, bias, residual));
          }
        }
      }
    }
  });
}

TEST(LinearPiece, IsItsComposition) { check_kind(Kind::plain); }
TEST(LinearPiece, AfterSwiGluIsItsComposition) { check_kind(Kind::swiglu); }
TEST(LinearPiece, AfterGeluIsItsComposition) { check_kind(Kind::gelu); }
TEST(LinearPiece, AfterTanhGeluIsItsComposition) { check_kind(Kind::gelu_tanh); }

TEST(LinearPiece, TakesGradientsThatAreNotDense) {
  const ScopedPieces fused(Pieces::fused);
  const Piece piece = piece_of(Kind::swiglu, 9, 16, 33, true, true);
  std::vector<std::vector<Tensor>> found;
  for (const bool dense : {false, true}) {
    std::vector<Tensor> leaves;
    std::vector<Weight> inputs;
    for (const Tensor& x : piece.inputs) {
      leaves.push_back(x.clone().requires_grad_());
      inputs.push_back({leaves.back()});
    }
    const Tensor y = piece.call(inputs)[0];
    const Tensor one = at::full({1, 1}, 0.5, at::kDouble).expand(y.sizes());
    found.push_back(torch::autograd::grad({y}, leaves, {dense ? one.contiguous() : one}));
  }
  for (size_t i = 0; i < found[0].size(); ++i) EXPECT_LE(relative_difference(found[0][i], found[1][i]), 1e-15) << i;
}

TEST(LinearPiece, KeepsLeadingDimensions) {
  const Tensor x = at::randn({2, 3, 16}, at::kDouble), weight = at::randn({5, 16}, at::kDouble);
  const Tensor residual = at::randn({2, 3, 5}, at::kDouble);
  const Tensor y = linear(x, Weight{weight}, {}, residual);
  EXPECT_LE(relative_difference(y, at::matmul(x, weight.t()) + residual), 1e-14);
}

TEST(LinearPiece, HalfTypesReturnTheirGradient) {
  const ScopedPieces fused(Pieces::fused);
  const Piece piece = piece_of(Kind::swiglu, 31, 65, 16, true, true);
  const Evaluation right = composition(piece, all_of(piece));
  std::vector<MemorySink> sinks;
  sinks.reserve(piece.inputs.size());
  std::vector<Tensor> leaves;
  std::vector<Weight> inputs;
  for (const Tensor& x : piece.inputs) {
    leaves.push_back(x.to(at::kBFloat16).requires_grad_());
    sinks.emplace_back(at::zeros(x.sizes(), at::kFloat), true);
    inputs.push_back({leaves.back(), &sinks.back()});
  }
  const Tensor y = piece.call(inputs)[0];
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_difference(y, right.outputs[0]), 2e-2);
  const Tensor seed = seed_of(y, 0);
  const std::vector<Tensor> found = torch::autograd::grad({y}, leaves, {seed});
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
    EXPECT_LE(relative_difference(found[i], right.gradients[i]), 3e-2) << i;
    EXPECT_EQ(sinks[i].opened, 0);
  }
}

TEST(LinearPiece, AddsToASinkOfAnotherDtype) {
  const ScopedPieces fused(Pieces::fused);
  const Piece piece = piece_of(Kind::plain, 31, 65, 16, true, false);
  const Evaluation right = composition(piece, all_of(piece));
  for (const bool fresh : {true, false}) {
    MemorySink weight(at::full({16, 65}, fresh ? std::nan("") : 2.0, at::kDouble), fresh);
    MemorySink bias(at::full({16}, fresh ? std::nan("") : 2.0, at::kDouble), fresh);
    const Tensor x = piece.inputs[0].to(at::kFloat), w = piece.inputs[1].to(at::kFloat).requires_grad_(),
                 b = piece.inputs[2].to(at::kFloat).requires_grad_();
    const Tensor y = linear(x, Weight{w, &weight}, Weight{b, &bias});
    const Tensor seed = seed_of(y, 0);
    torch::autograd::grad({y}, {w, b}, {seed}, std::nullopt, false, true);
    EXPECT_LE(relative_difference(weight.sum - (fresh ? 0 : 2), right.gradients[1]), 2e-6);
    EXPECT_LE(relative_difference(bias.sum - (fresh ? 0 : 2), right.gradients[2]), 2e-6);
  }
}

// What a weight's product needs is kept by nobody when the weight is frozen.
TEST(LinearPiece, KeepsOnlyWhatItNeeds) {
  const ScopedPieces fused(Pieces::fused);
  const Tensor weight = at::randn({5, 16}, at::kDouble);
  Tensor x = at::randn({4, 16}, at::kDouble).requires_grad_();
  const Tensor middle = x * 2.0;
  const size_t before = middle.use_count(), storage = middle.storage().use_count();
  const Tensor y = linear(middle, Weight{weight});
  EXPECT_EQ(middle.use_count(), before);
  EXPECT_EQ(middle.storage().use_count(), storage);
  const Tensor z = linear(middle, Weight{weight.clone().requires_grad_()});
  EXPECT_GT(middle.use_count() + middle.storage().use_count(), before + storage);
}

TEST(LinearPiece, RunsWithoutMemory) {
  const ScopedPieces fused(Pieces::fused);
  for (const Kind kind : {Kind::plain, Kind::swiglu, Kind::gelu}) {
    const Piece piece = piece_of(kind, 31, 65, 16, true, true);
    std::vector<Tensor> leaves;
    std::vector<Weight> inputs;
    for (const Tensor& x : piece.inputs) {
      leaves.push_back(at::empty(x.sizes(), at::TensorOptions(at::kMeta).dtype(at::kFloat)).requires_grad_());
      inputs.push_back({leaves.back()});
    }
    const Tensor y = piece.call(inputs)[0];
    const std::vector<Tensor> found = torch::autograd::grad({y}, leaves, {at::empty_like(y)});
    for (size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(found[i].sizes(), leaves[i].sizes());
  }
}

}  // namespace
}  // namespace loom::test
