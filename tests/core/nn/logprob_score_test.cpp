// Scoring of targets: the log-probabilities are those of training, and "correct" is what an argmax over all logits
// says, over chunk borders, ties and dtypes.
#include <gtest/gtest.h>

#include <c10/core/GradMode.h>

#include "core/nn/logprob_head.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

class LogProbScore : public testing::TestWithParam<at::ScalarType> {};

TEST_P(LogProbScore, AgreesWithTrainingAndArgmax) {
  at::manual_seed(5);
  BoundLayer layer;
  // A vocabulary so large that rows come in several chunks.
  constexpr int64_t kVocab = 70'000, kWidth = 6, kRows = 141;
  const LogProbHead head(layer.declarer(), kVocab, kWidth);
  layer.bind(GetParam());
  const at::Tensor x = at::randn({kRows, kWidth}, at::kDouble).to(GetParam());
  const at::Tensor logits = at::mm(x, layer.params()[0].t()).detach();
  at::Tensor targets = at::randint(kVocab, {kRows}, at::kLong);
  const at::Tensor best = logits.argmax(1);
  targets.slice(0, 0, kRows, 3).copy_(best.slice(0, 0, kRows, 3));  // every third row is right
  UnitContext ctx = layer.context(Phase::evaluate);
  const TargetScores scores = head.score(x, targets, ctx);
  EXPECT_TRUE(same_bits(scores.log_probs, head.log_probs(x, targets, ctx).detach()));
  EXPECT_TRUE(at::equal(scores.correct, (targets == best).to(scores.correct.scalar_type())));
  EXPECT_EQ(scores.correct.sum().item<double>(), 47);
  EXPECT_FALSE(scores.log_probs.requires_grad());
}

INSTANTIATE_TEST_SUITE_P(Types, LogProbScore, testing::Values(at::kFloat, at::kDouble));

TEST(LogProbScoreTies, OfEqualLogitsEachCounts) {
  BoundLayer layer;
  const LogProbHead head(layer.declarer(), 3, 2);
  layer.bind(at::kFloat);
  {
    const c10::NoGradGuard no_grad;
    layer.params()[0].zero_();
  }
  UnitContext ctx = layer.context(Phase::evaluate);
  const TargetScores scores = head.score(at::ones({3, 2}), at::arange(3, at::kLong), ctx);
  EXPECT_EQ(scores.correct.sum().item<double>(), 3);
}

}  // namespace
}  // namespace loom::test
