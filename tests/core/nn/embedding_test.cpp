// Rows of a table: values and gradients against ATen, into memory or returned.
#include "core/nn/ops/embedding.h"

#include <ATen/Parallel.h>

#include "core/base/error.h"
#include "tests/core/nn/levels.h"
#include "tests/core/nn/piece_check.h"

namespace loom::test {
namespace {

Piece piece_of(int64_t rows, int64_t table, int64_t width, bool more) {
  at::manual_seed(rows * 100 + width);
  Piece piece;
  piece.inputs = {at::randn({table, width}, at::kDouble)};
  piece.is_parameter = {true};
  if (more) {
    piece.inputs.push_back(at::randn({rows, width}, at::kDouble));
    piece.is_parameter.push_back(false);
  }
  const Tensor ids = at::randint(0, table, {rows}, at::kLong);
  piece.call = [ids, more](const std::vector<Weight>& x) {
    return std::vector<Tensor>{embedding(x[0], ids, more ? x[1].value : Tensor())};
  };
  return piece;
}

TEST(EmbeddingPiece, IsItsComposition) {
  at_every_level([] {
    for (const int64_t rows : row_counts()) {
      for (const int64_t width : {16, 17, 513}) {
        for (const bool more : {false, true}) {
          SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << (more ? ", added" : ""));
          check_piece(piece_of(rows, 40, width, more));
        }
      }
    }
  });
}

TEST(EmbeddingPiece, ThreadsDoNotChangeAGradient) {
  const ScopedPieces fused(Pieces::fused);
  const Piece piece = piece_of(3000, 7, 1000, false);
  const int threads = at::get_num_threads();
  std::vector<Tensor> found;
  for (const int n : {1, 3}) {
    at::set_num_threads(n);
    found.push_back(evaluate(piece, at::kFloat, {true}, false, Sinks::fresh).sinks[0].sum);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(same_bits(found[0], found[1]));
}

TEST(EmbeddingPiece, RefusesIdsThatTheTableDoesNotHave) {
  const ScopedPieces fused(Pieces::fused);
  const Tensor table = at::zeros({4, 8});
  EXPECT_THROW(embedding(Weight{table}, at::tensor({1, 4}, at::kLong)), InternalError);
  EXPECT_THROW(embedding(Weight{table}, at::tensor({-1}, at::kLong)), InternalError);
}

TEST(EmbeddingPiece, HalfTypesReturnTheirGradient) {
  const Piece piece = piece_of(31, 40, 17, true);
  const Evaluation right = composition(piece, {true, true});
  const Evaluation found = evaluate(piece, at::kBFloat16, {true, true}, false, Sinks::fresh);
  expect_same(found, right, 2e-2);
  EXPECT_EQ(found.sinks[0].opened, 0);
}

}  // namespace
}  // namespace loom::test
