// One optimizer step: a step without supervised tokens changes nothing, a gradient that is not finite is refused by
// name, and the number of microbatches does not matter.
#include "core/train/trainer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/base/error.h"
#include "tests/core/train/steps.h"

namespace loom::test {
namespace {

struct Training {
  explicit Training(const char* kind = "adamw", double clip = 1.0) : model(tiny_model()) {
    OptimizerConfig config;
    config.kind = kind;
    config.groups.weight_decay = 0.1;
    optimizer = make_optimizer(config, model->buffers());
    TrainerOptions options;
    options.schedule = {0.05, 2, 10, "cosine", 0, 0.1};
    options.clip = clip;
    trainer = std::make_unique<Trainer>(*model, *optimizer, options);
  }
  std::vector<Tensor> weights() {
    std::vector<Tensor> out;
    for (UnitBuffer* buffer : model->buffers()) out.push_back(buffer->master().clone());
    return out;
  }
  std::unique_ptr<MultimodalModel> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Trainer> trainer;
};

TEST(Trainer, StepWithoutSupervisedTokensChangesNoBit) {
  Training s;
  s.trainer->step(step_of(1, uneven_samples(), 100));
  const std::vector<Tensor> before = s.weights();
  const StepStats stats = s.trainer->step(step_of(2, {sample_of(5, 3, 4, 0), sample_of(6, 2, 3, 0)}, 100));
  const std::vector<Tensor> after = s.weights();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
  EXPECT_FALSE(stats.updated);
  EXPECT_EQ(stats.step, 2);
  EXPECT_EQ(stats.supervised, 0);
  EXPECT_EQ(stats.samples, 2);
  EXPECT_EQ(stats.lr, learning_rate(s.trainer->options().schedule, 2));  // the schedule goes on
  EXPECT_EQ(s.optimizer->steps(), 1);
}

// A checkpoint is copied until then.
TEST(Trainer, TellsBeforeWeightsAndStatesChange) {
  Training s;
  s.trainer->step(step_of(1, uneven_samples(), 100));
  const auto everything = [&] {
    std::vector<Tensor> out = s.weights();
    for (const NamedTensor& state : s.optimizer->state()) out.push_back(state.tensor.clone());
    return out;
  };
  std::vector<std::vector<Tensor>> told;
  TrainerOptions options = s.trainer->options();
  options.before_update = [&] { told.push_back(everything()); };
  Trainer told_first(*s.model, *s.optimizer, options);
  const std::vector<Tensor> before = everything();
  told_first.step(step_of(2, uneven_samples(), 9));
  const std::vector<Tensor> after = everything();
  ASSERT_EQ(told.size(), 1u);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::equal(before[i], told[0][i])) << i;
    EXPECT_FALSE(at::equal(before[i], after[i])) << i;
  }
}

TEST(Trainer, NumberOfMicrobatchesDoesNotMatter) {
  for (const char* kind : {"sgd", "adamw"}) {
    Training one(kind), many(kind);
    for (int64_t step = 1; step <= 5; ++step) {
      const StepStats a = one.trainer->step(step_of(step, uneven_samples(), 100));
      const StepStats b = many.trainer->step(step_of(step, uneven_samples(), 9));
      EXPECT_EQ(a.microbatches, 1);
      EXPECT_EQ(b.microbatches, 4);
      EXPECT_NEAR(a.loss, b.loss, 1e-10);
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-10 * a.grad_norm);
    }
    if (std::string(kind) != "sgd") continue;
    const std::vector<Tensor> x = one.weights(), y = many.weights();
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LE((x[i] - y[i]).norm().item<double>(), 1e-10 * x[i].norm().item<double>());
  }
}

TEST(Trainer, ClipsByTheGlobalNorm) {
  Training free("sgd", 0), clipped("sgd", 0.01);
  const std::vector<Tensor> before = free.weights();
  const StepStats a = free.trainer->step(step_of(1, uneven_samples(), 100));
  clipped.trainer->step(step_of(1, uneven_samples(), 100));
  ASSERT_GT(a.grad_norm, 0.01);
  double moved = 0, moved_clipped = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    moved += (free.weights()[i] - before[i]).pow(2).sum().item<double>();
    moved_clipped += (clipped.weights()[i] - before[i]).pow(2).sum().item<double>();
  }
  EXPECT_LT(moved_clipped, moved);
}

TEST(Trainer, RefusesGradientsThatAreNotFinite) {
  Training s;
  s.trainer->step(step_of(1, uneven_samples(), 100));
  const std::vector<Tensor> before = s.weights();
  std::vector<PreparedSample> bad = uneven_samples();
  bad[1].media[0].fill_(std::numeric_limits<float>::quiet_NaN());
  try {
    s.trainer->step(step_of(2, bad, 100));
    ADD_FAILURE() << "a NaN went through";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("step 2: the gradient of "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("is not finite"), std::string::npos);
  }
  const std::vector<Tensor> after = s.weights();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
  EXPECT_EQ(s.optimizer->steps(), 1);
}

}  // namespace
}  // namespace loom::test
