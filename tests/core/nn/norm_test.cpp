// norm and add_norm against their compositions.
#include "core/nn/ops/norm.h"

#include <ATen/Parallel.h>

#include "tests/core/nn/levels.h"
#include "tests/core/nn/piece_check.h"

namespace loom::test {
namespace {

enum class Form { alone = 1, joined, added };  // norm, add_norm without and with a delta

Piece piece_of(Form form, int64_t rows, int64_t width, bool bias) {
  at::manual_seed(rows * 1000 + width);
  Piece piece;
  piece.inputs = {at::randn({rows, width}, at::kDouble) * 2 + 0.5};
  if (form == Form::added) piece.inputs.push_back(at::randn({rows, width}, at::kDouble));
  piece.is_parameter.resize(piece.inputs.size(), false);
  const size_t weight = piece.inputs.size();
  piece.inputs.push_back(at::randn({width}, at::kDouble) + 1);
  if (bias) piece.inputs.push_back(at::randn({width}, at::kDouble));
  piece.is_parameter.resize(piece.inputs.size(), true);
  piece.call = [form, bias, weight](const std::vector<Weight>& x) -> std::vector<Tensor> {
    const Weight shift = bias ? x.back() : Weight{};
    if (form == Form::alone) return {norm(x[0].value, x[weight], shift, 1e-2)};
    const AddedNorm out = add_norm(x[0].value, form == Form::added ? x[1].value : Tensor(), x[weight], shift, 1e-2);
    return {out.sum, out.normed};
  };
  return piece;
}

void check_form(Form form) {
  at_every_level([form] {
    for (const int64_t rows : row_counts()) {
      for (const int64_t width : {16, 17, 65, 513}) {
        for (const bool bias : {false, true}) {
          SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << (bias ? ", layer norm" : ", RMS norm"));
          check_piece(piece_of(form, rows, width, bias));
        }
      }
    }
  });
}

TEST(NormPiece, IsItsComposition) { check_form(Form::alone); }
TEST(NormPiece, WithTheStreamIsItsComposition) { check_form(Form::joined); }
TEST(NormPiece, WithAnAdditionIsItsComposition) { check_form(Form::added); }

TEST(NormPiece, EitherOutputMayBeUnused) {
  const ScopedPieces fused(Pieces::fused);
  for (const Form form : {Form::joined, Form::added}) {
    for (const bool bias : {false, true}) {
      for (const std::vector<bool>& used : {std::vector<bool>{true, false}, std::vector<bool>{false, true}}) {
        const Piece piece = piece_of(form, 31, 65, bias);
        const Evaluation found = evaluate(piece, at::kDouble, all_of(piece), false, Sinks::none, used);
        expect_same(found, composition(piece, all_of(piece), used), 1e-13);
      }
    }
  }
}

// The sum and its norm have the bits of a sum made before and of the norm of it.
TEST(NormPiece, AddingFirstChangesNoBit) {
  const ScopedPieces fused(Pieces::fused);
  at_every_level([] {
    const Tensor x = at::randn({31, 77}), delta = at::randn({31, 77}), weight = at::randn({77});
    const AddedNorm found = add_norm(x, delta, Weight{weight}, {}, 1e-5);
    EXPECT_TRUE(same_bits(found.sum, x + delta));
    EXPECT_TRUE(same_bits(found.normed, norm(x + delta, Weight{weight}, {}, 1e-5)));
  });
}

TEST(NormPiece, HalfTypes) {
  const ScopedPieces fused(Pieces::fused);
  for (const Form form : {Form::alone, Form::joined, Form::added}) {
    const Piece piece = piece_of(form, 31, 65, true);
    const Evaluation right = composition(piece, all_of(piece));
    const Evaluation found = evaluate(piece, at::kBFloat16, all_of(piece));
    for (const Tensor& y : found.outputs) EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    expect_same(found, right, 3e-2);
  }
}

TEST(NormPiece, ASinkGetsTheSameBitsFromAnyNumberOfThreads) {
  const ScopedPieces fused(Pieces::fused);
  const Piece piece = piece_of(Form::added, 1000, 513, true);
  const int threads = at::get_num_threads();
  std::vector<Evaluation> found;
  for (const int n : {1, 3}) {
    at::set_num_threads(n);
    found.push_back(evaluate(piece, at::kFloat, all_of(piece), false, Sinks::filled));
  }
  at::set_num_threads(threads);
  for (size_t i = 2; i < 4; ++i) EXPECT_TRUE(same_bits(found[0].sinks[i].sum, found[1].sinks[i].sum));
}

}  // namespace
}  // namespace loom::test
