// Invariants 1 and 2 of the design on one rank: packing, order and accumulation change neither loss nor gradients; a
// sample does not feel by one bit what else is in its pack.
#include <gtest/gtest.h>

#include <iostream>

#include <ATen/ATen.h>

#include "core/model/generator.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

std::vector<TinySample> random_samples(uint64_t seed, int64_t count) {
  const Philox random({seed, Purpose::sample});
  std::vector<TinySample> out;
  for (int64_t i = 0; i < count; ++i) {
    TinySample sample{seed * 1000 + static_cast<uint64_t>(i), {}, 2 + static_cast<int64_t>(random.below(9, 10 * i))};
    for (uint64_t k = random.below(3, 10 * i + 1); k > 0; --k)
      sample.items.push_back(1 + static_cast<int64_t>(random.below(6, 10 * i + 1 + k)));
    out.push_back(sample);
  }
  return out;
}

std::vector<ModelBatch> in_groups(const std::vector<TinySample>& samples, size_t groups, at::ScalarType dtype) {
  std::vector<ModelBatch> out;
  for (size_t g = 0; g < groups; ++g) {
    const size_t begin = samples.size() * g / groups, end = samples.size() * (g + 1) / groups;
    out.push_back(tiny_batch({samples.begin() + begin, samples.begin() + end}, dtype));
  }
  return out;
}

class Parity : public testing::TestWithParam<at::ScalarType> {
 protected:
  TinyOptions options() const {
    TinyOptions o{GetParam(), GetParam()};
    o.dropout = 0.25;
    o.interior_loss = true;
    return o;
  }
  bool is_double() const { return GetParam() == at::kDouble; }
};

TEST_P(Parity, AccumulationDoesNotChangeAnything) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto samples = random_samples(seed, 12);  // uneven supervised tokens per microbatch
    const auto model = tiny_model(options());
    const TinyStep one = tiny_step(*model, in_groups(samples, 1, GetParam()));
    for (const size_t groups : {2u, 4u}) {
      const TinyStep more = tiny_step(*model, in_groups(samples, groups, GetParam()));
      EXPECT_NEAR(one.loss, more.loss, std::abs(one.loss) * (is_double() ? 1e-10 : 2e-5));
      EXPECT_NEAR(one.interior.at("balance"), more.interior.at("balance"), is_double() ? 1e-10 : 2e-5);
      EXPECT_LE(worst_difference(one.gradients, more.gradients), is_double() ? 1e-10 : 2e-5) << groups;
    }
  }
}

TEST_P(Parity, PackedEqualsSeparate) {
  for (uint64_t seed = 5; seed <= 8; ++seed) {
    const auto samples = random_samples(seed, 7);
    const auto model = tiny_model(options());
    const TinyStep packed = tiny_step(*model, in_groups(samples, 1, GetParam()));
    const TinyStep separate = tiny_step(*model, in_groups(samples, samples.size(), GetParam()));
    double difference = 0, norm = 0;
    for (const auto& [name, g] : packed.gradients) {
      difference += (g - separate.gradients.at(name)).to(at::kDouble).pow(2).sum().item<double>();
      norm += g.to(at::kDouble).pow(2).sum().item<double>();
    }
    EXPECT_LE(std::sqrt(difference / norm), is_double() ? 1e-13 : 2e-6);
  }
}

TEST_P(Parity, OtherContentChangesNoBit) {
  const auto model = tiny_model(options());
  const std::vector<TinySample> first{{1, {3, 2}, 6}, {2, {4}, 5}};
  const std::vector<TinySample> second{{3, {2}, 9}, {4, {}, 4}};
  const auto log_probs = [&](uint64_t salt) {  // contents of `first` depend on salt, those of `second` do not
    ModelBatch a = tiny_batch(first, GetParam(), salt);
    std::vector<TinySample> all = first;
    all.insert(all.end(), second.begin(), second.end());
    ModelBatch batch = tiny_batch(all, GetParam(), 0);
    batch.tokens.narrow(0, 0, a.tokens.size(0)).copy_(a.tokens);
    const Tensor& media = a.pass("image").media;
    batch.pass("image").media.narrow(0, 0, media.size(0)).copy_(media);
    const Tensor out = model->log_probs(batch);
    return out.narrow(0, a.targets.size(0), out.size(0) - a.targets.size(0)).clone();
  };
  const Tensor reference = log_probs(0);
  ASSERT_GT(reference.size(0), 3);
  for (uint64_t salt = 1; salt <= 10; ++salt) EXPECT_TRUE(at::equal(reference, log_probs(salt))) << salt;
}

TEST_P(Parity, AbsentModalityAndTextOnly) {
  const auto model = tiny_model(options());
  const std::vector<TinySample> text{{1, {}, 6}, {2, {}, 5}};
  const TinyStep step = tiny_step(*model, {tiny_batch(text, GetParam())});
  EXPECT_TRUE(std::isfinite(step.loss));
  for (const auto& [name, g] : step.gradients) {
    const double norm = g.to(at::kDouble).norm().item<double>();
    if (name.rfind("backbone", 0) == 0) continue;
    EXPECT_EQ(norm, 0) << name;
  }
}

TEST_P(Parity, CachedGenerationEqualsFullRecomputation) {
  const auto model = tiny_model({GetParam(), GetParam()});
  const std::vector<TinySample> samples{{1, {3}, 1}, {2, {2, 4}, 3}, {3, {}, 2}, {4, {5}, 1}};
  ModelBatch prompts = tiny_batch(samples, GetParam());
  std::vector<int64_t> last;
  for (int64_t s = 0; s < 4; ++s) last.push_back(prompts.text.at("").offsets[s + 1] - 1);
  prompts.loss_rows = at::tensor(at::ArrayRef<int64_t>(last), at::kLong);
  prompts.targets = Tensor();
  const auto cached = generate(*model, prompts, {9, {4}});
  for (size_t s = 0; s < samples.size(); ++s) {
    std::vector<int64_t> produced;
    for (int64_t n = 0; n < 9; ++n) {
      ModelBatch grown = tiny_batch({samples[s]}, GetParam());
      const Tensor extra = at::tensor(at::ArrayRef<int64_t>(produced), at::kLong);
      grown.tokens = at::cat({grown.tokens, extra});
      grown.text.clear();
      grown.text[""].append(grown.tokens.size(0), {samples[s].key, 0, 0});
      grown.loss_rows = at::full({1}, grown.tokens.size(0) - 1, at::kLong);
      grown.targets = Tensor();
      KvCache fresh(1, grown.tokens.size(0));
      const int64_t token = model->logits(grown, fresh).argmax(1).item<int64_t>();
      if (token == 4) break;
      produced.push_back(token);
    }
    EXPECT_EQ(cached[s], produced) << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Parity, testing::Values(at::kDouble, at::kFloat), [](const auto& dtype) {
  return std::string(dtype.param == at::kDouble ? "float64" : "float32");
});

}  // namespace
}  // namespace loom::test
