// AdamW and SGD against closed forms and against LibTorch's own optimizers, with groups, clipping and saved state.
#include "core/train/optimizer.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <map>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/nn/kernels/kernel_set.h"
#include "core/train/update_kernels.h"
#include "tests/core/train/buffers.h"

namespace loom {
namespace {

using test::Buffers;

OptimizerConfig config_of(const std::string& kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.beta2 = 0.95;
  config.groups.weight_decay = 0.1;
  return config;
}

// LibTorch's optimizer over copies of our parameters: matrices with decay, vectors without.
struct Twin {
  std::vector<at::Tensor> matrices, vectors;
  std::vector<std::pair<size_t, size_t>> matrix_places, vector_places;

  explicit Twin(Buffers& buffers) {
    for (size_t b = 0; b < 2; ++b) {
      for (size_t e = 0; e < buffers[b].entries().size(); ++e) {
        at::Tensor copy = buffers[b].master_of(e).clone().requires_grad_(true);
        (copy.dim() > 1 ? matrices : vectors).push_back(copy);
        (copy.dim() > 1 ? matrix_places : vector_places).emplace_back(b, e);
      }
    }
  }
  void take_gradients(Buffers& buffers, double scale) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      matrices[i].mutable_grad() = buffers[matrix_places[i].first].gradient_of(matrix_places[i].second) * scale;
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      vectors[i].mutable_grad() = buffers[vector_places[i].first].gradient_of(vector_places[i].second) * scale;
    }
  }
  double largest_difference(Buffers& buffers) const {
    double largest = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const at::Tensor ours = buffers[matrix_places[i].first].master_of(matrix_places[i].second);
      largest = std::max(largest, (ours - matrices[i]).abs().max().item<double>());
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      const at::Tensor ours = buffers[vector_places[i].first].master_of(vector_places[i].second);
      largest = std::max(largest, (ours - vectors[i]).abs().max().item<double>());
    }
    return largest;
  }
};

template <class Theirs, class Options>
void compare(const std::string& kind, Options options, at::ScalarType type, double tolerance) {
  Buffers buffers(type);
  buffers.randomize(1);
  const at::Tensor before = buffers[0].master_of(0).clone();
  Twin twin(buffers);
  Options plain = options;
  plain.weight_decay(0);
  options.weight_decay(0.1);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(twin.matrices, std::make_unique<Options>(options));
  groups.emplace_back(twin.vectors, std::make_unique<Options>(plain));
  Theirs theirs(groups, plain);  // a value of a group that equals the type's default counts as unset there
  const std::unique_ptr<Optimizer> ours = make_optimizer(config_of(kind), buffers.all());
  for (int step = 1; step <= 20; ++step) {
    const double lr = 1e-2 / step, scale = step % 3 == 0 ? 0.37 : 1;
    for (size_t b = 0; b < 2; ++b) {
      for (size_t e = 0; e < buffers[b].entries().size(); ++e) buffers[b].gradient_of(e).normal_(0, 1e-2);
    }
    twin.take_gradients(buffers, scale);
    for (auto& group : theirs.param_groups()) group.options().set_lr(lr);
    theirs.step();
    ours->step(lr, scale);
    ASSERT_LE(twin.largest_difference(buffers), tolerance) << kind << " step " << step;
  }
  EXPECT_GT((buffers[0].master_of(0) - before).abs().max().item<double>(), 1e-3);
  EXPECT_EQ(ours->steps(), 20);
}

TEST(Optimizer, AdamWEqualsLibTorch) {
  const auto options = torch::optim::AdamWOptions(1e-2).betas({0.9, 0.95}).eps(1e-8);
  compare<torch::optim::AdamW>("adamw", options, at::kDouble, 1e-14);
  compare<torch::optim::AdamW>("adamw", options, at::kFloat, 2e-6);
}

TEST(Optimizer, SgdEqualsLibTorch) {
  const auto options = torch::optim::SGDOptions(1e-2).momentum(0.9);
  compare<torch::optim::SGD>("sgd", options, at::kDouble, 1e-15);
  compare<torch::optim::SGD>("sgd", options, at::kFloat, 1e-6);
}

TEST(Optimizer, FirstAdamWStepInClosedForm) {
  Buffers buffers(at::kDouble);
  buffers[0].master_of(0).fill_(2.0);
  buffers[0].gradient_of(0).fill_(-3.0);
  buffers[0].master_of(1).fill_(2.0);
  buffers[0].gradient_of(1).fill_(5.0);
  make_optimizer(config_of("adamw"), buffers.all())->step(0.01, 1);
  // Moments are unbiased after one step, so the update is lr * sign(g).
  EXPECT_NEAR(buffers[0].master_of(0)[3][4].item<double>(), 2.0 * (1 - 0.01 * 0.1) + 0.01 * 3 / (3 + 1e-8), 1e-15);
  EXPECT_NEAR(buffers[0].master_of(1)[12].item<double>(), 2.0 - 0.01 * 5 / (5 + 1e-8), 1e-15);
}

TEST(Optimizer, SgdWithoutMomentumInClosedForm) {
  Buffers buffers(at::kDouble);
  OptimizerConfig config = config_of("sgd");
  config.momentum = 0;
  buffers[0].master_of(0).fill_(2.0);
  buffers[0].gradient_of(0).fill_(-3.0);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config, buffers.all());
  optimizer->step(0.5, 0.1);
  EXPECT_NEAR(buffers[0].master_of(0)[0][0].item<double>(), 2.0 - 0.5 * (-0.3 + 0.1 * 2.0), 1e-15);
  EXPECT_TRUE(optimizer->state().empty());
  EXPECT_EQ(optimizer->state_bytes(), 0);
}

TEST(Optimizer, GroupsScaleTheRateAndReplaceTheDecay) {
  Buffers buffers(at::kDouble);
  OptimizerConfig config = config_of("sgd");
  config.momentum = 0;
  config.groups.rules.push_back({"*.head.bias", 10.0, 0.5, {}, ""});
  for (size_t e = 0; e < 3; ++e) {
    buffers[1].master_of(e).fill_(1.0);
    buffers[1].gradient_of(e).fill_(1.0);
  }
  make_optimizer(config, buffers.all())->step(0.01, 1);
  EXPECT_NEAR(buffers[1].master_of(0)[0][0].item<double>(), 1 - 0.01 * 1.1, 1e-15);
  EXPECT_NEAR(buffers[1].master_of(1)[0].item<double>(), 1 - 0.01, 1e-15);
  EXPECT_NEAR(buffers[1].master_of(2)[0].item<double>(), 1 - 0.1 * 1.5, 1e-15);
}

TEST(Optimizer, LeavesFrozenBuffersAndPaddingAlone) {
  Buffers buffers(at::kFloat);
  buffers.randomize(2);
  const at::Tensor frozen = buffers[2].master().clone();
  const uint64_t frozen_generation = buffers[2].generation(), generation = buffers[0].generation();
  make_optimizer(config_of("adamw"), buffers.all())->step(0.1, 1);
  EXPECT_TRUE(at::equal(buffers[2].master(), frozen));
  EXPECT_EQ(buffers[2].generation(), frozen_generation);
  EXPECT_NE(buffers[0].generation(), generation);
  const BufferEntry& first = buffers[0].entries()[0];
  const at::Tensor padding = buffers[0].master().slice(0, first.offset + first.numel, buffers[0].entries()[1].offset);
  ASSERT_GT(padding.numel(), 0);
  EXPECT_EQ(padding.abs().max().item<double>(), 0);
}

TEST(Optimizer, ResultDoesNotDependOnThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (int count : {1, 2}) {
    at::set_num_threads(count);
    Buffers buffers(at::kFloat);
    buffers.randomize(6);
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(config_of("adamw"), buffers.all());
    for (int step = 0; step < 3; ++step) optimizer->step(1e-2, 0.9);
    results.push_back(buffers[1].master().clone());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

TEST(UpdateKernels, EveryInstructionSetGivesTheSameBits) {
  const kernels::Level before = kernels::current_level();
  for (const int64_t count : {1, 7, 16, 33, 1000}) {
    const auto random = [&](uint64_t seed) {
      std::vector<double> numbers(count);
      Philox({.seed = seed}).normals(0, numbers.data(), count);
      return std::vector<float>(numbers.begin(), numbers.end());
    };
    std::vector<std::vector<float>> results;
    std::vector<double> sums;
    for (const auto level : {kernels::Level::generic, kernels::Level::avx2, kernels::Level::avx512}) {
      if (!supports(level)) continue;
      kernels::use_level(level);
      std::vector<float> w = random(1), m = random(2), v = random(3), momentum = random(5);
      const std::vector<float> g = random(4);
      for (float& value : v) value = std::abs(value);
      kernels::adamw<float>(w.data(), g.data(), m.data(), v.data(), count,
                            {0.7F, 0.999F, 0.1F, 0.999F, 0.001F, 1e-2F, 0.9F, 1e-8F});
      kernels::sgd<float>(w.data(), g.data(), momentum.data(), count, {0.7F, 0.01F, 0.9F, 1e-2F});
      for (const std::vector<float>* more : {&m, &v, &momentum}) w.insert(w.end(), more->begin(), more->end());
      results.push_back(w);
      sums.push_back(kernels::sum_of_squares(g.data(), count));
    }
    double expected = 0;
    for (const float value : random(4)) expected += static_cast<double>(value) * static_cast<double>(value);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i], results[0]) << count;
      EXPECT_EQ(sums[i], sums[0]) << count;
      EXPECT_NEAR(sums[i], expected, 1e-12 * expected);
    }
  }
  kernels::use_level(before);
}

TEST(Optimizer, StateRoundTripContinuesBitForBit) {
  for (const char* kind : {"adamw", "sgd"}) {
    Buffers a(at::kFloat), b(at::kFloat);
    a.randomize(7);
    const std::unique_ptr<Optimizer> first = make_optimizer(config_of(kind), a.all());
    for (int step = 0; step < 3; ++step) first->step(1e-2, 1);
    const std::unique_ptr<Optimizer> second = make_optimizer(config_of(kind), b.all());
    std::map<std::string, at::Tensor> saved;
    for (const NamedTensor& s : first->state()) saved.emplace(s.name, s.tensor.clone());
    EXPECT_EQ(saved.size(), std::string(kind) == "adamw" ? 10u : 5u);
    for (const NamedTensor& s : second->state()) {
      ASSERT_TRUE(saved.count(s.name)) << s.name;
      s.tensor.copy_(saved.at(s.name));
    }
    second->set_steps(first->steps());
    for (size_t i = 0; i < 2; ++i) {
      b[i].master().copy_(a[i].master());
      b[i].gradient().copy_(a[i].gradient());
    }
    first->step(1e-2, 0.5);
    second->step(1e-2, 0.5);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(a[i].master(), b[i].master())) << kind;
  }
}

TEST(Optimizer, StateIsNamedAndShapedLikeItsParameter) {
  Buffers buffers(at::kFloat);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config_of("adamw"), buffers.all());
  const std::vector<NamedTensor> state = optimizer->state();
  ASSERT_EQ(state.size(), 10u);
  EXPECT_EQ(state[0].name, "optimizer.exp_avg.encoders.image.blocks.0.qkv.weight");
  EXPECT_EQ(state[0].tensor.sizes(), (std::vector<int64_t>{37, 13}));
  EXPECT_EQ(state[5].name, "optimizer.exp_avg_sq.encoders.image.blocks.0.qkv.weight");
  EXPECT_EQ(optimizer->state_bytes(), 2 * 4 * (buffers[0].numel() + buffers[1].numel()));
}

TEST(Optimizer, ReadsTheRecipe) {
  Schema schema;
  add_optimizer_fields(schema);
  Mistakes mistakes;
  const OptimizerConfig defaults = read_optimizer(validate(ConfigValue::map(), schema, mistakes));
  EXPECT_EQ(defaults.kind, "adamw");
  EXPECT_EQ(defaults.beta2, 0.999);
  EXPECT_EQ(defaults.eps, 1e-8);
  EXPECT_EQ(defaults.groups.weight_decay, 0.01);
  ConfigValue bad = validate(ConfigValue::map({{"beta1", ConfigValue::integer(1)}}), schema, mistakes);
  EXPECT_TRUE(mistakes.empty());
  EXPECT_THROW(read_optimizer(bad), UserError);
}

}  // namespace
}  // namespace loom
