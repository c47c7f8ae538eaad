// Drawing a token: the distribution, its limits, and that an answer is a function of its own prompt, seed and key.
#include "core/model/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include <ATen/ATen.h>

#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

constexpr int kDraws = 10000;

std::vector<double> shares_of(const Tensor& logits, double temperature) {
  const Tensor p = (logits.to(at::kDouble) / temperature).softmax(0).contiguous();
  return {p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel()};
}

// Pearson's statistic of `counts` against the expected shares.
double chi_square(const std::map<int64_t, int>& counts, const std::vector<double>& shares, int draws) {
  double sum = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double expected = shares[i] * draws;
    const auto found = counts.find(static_cast<int64_t>(i));
    const double seen = found == counts.end() ? 0 : found->second;
    sum += (seen - expected) * (seen - expected) / expected;
  }
  return sum;
}

std::map<int64_t, int> draw(const Tensor& logits, const Sampling& sampling, uint64_t seed = 1) {
  const Philox random({.seed = seed, .purpose = Purpose::sample});
  std::map<int64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[pick_token(logits, sampling, random.uniform(static_cast<uint64_t>(i)))];
  return counts;
}

Sampling at_temperature(double temperature, uint64_t seed = 0) {
  Sampling out;
  out.temperature = temperature;
  out.seed = seed;
  return out;
}

// Prompts alone: every row before the last of a sample is context, and no targets.
ModelBatch prompts_of(const std::vector<TinySample>& samples) {
  ModelBatch batch = tiny_batch(samples, at::kDouble);
  const Segments& text = batch.text.at("");
  std::vector<int64_t> last;
  for (int64_t s = 0; s < text.count(); ++s) last.push_back(text.offsets[static_cast<size_t>(s) + 1] - 1);
  batch.loss_rows = at::tensor(at::IntArrayRef(last), at::kLong);
  batch.targets = Tensor();
  return batch;
}

TEST(PickToken, DrawsFollowTheSoftmax) {
  const Tensor logits = at::tensor({0.3, -1.0, 2.0, 0.0, 1.1, -0.4}, at::kFloat);
  for (const double temperature : {0.6, 1.0, 1.7}) {
    const double statistic =
        chi_square(draw(logits, at_temperature(temperature)), shares_of(logits, temperature), kDraws);
    EXPECT_LT(statistic, 20.5) << temperature;  // 5 degrees of freedom, p = 0.001
    // The same draws do not pass for another temperature: the test can fail.
    EXPECT_GT(chi_square(draw(logits, at_temperature(temperature)), shares_of(logits, temperature * 1.3), kDraws),
              20.5);
  }
}

TEST(PickToken, GreedyIsTheArgmaxAndColdIsNearlyGreedy) {
  const Philox random({.seed = 9});
  for (uint64_t round = 0; round < 50; ++round) {
    std::vector<double> values;
    for (uint64_t i = 0; i < 17; ++i) values.push_back(random.normal(round * 17 + i));
    const Tensor logits = at::tensor(at::ArrayRef<double>(values), at::kDouble);
    const int64_t best = logits.argmax().item<int64_t>();
    EXPECT_EQ(pick_token(logits, {}, 0.999), best);
    EXPECT_EQ(pick_token(logits, at_temperature(1e-6), 0.999), best);
    EXPECT_EQ(pick_token(logits, at_temperature(1e-308), 0.5), best);  // nothing overflows
  }
}

TEST(PickToken, TopKAndTopPLimitWhatCanBeDrawn) {
  const Tensor logits = at::tensor({0.5, 0.3, 0.1, 0.06, 0.04}, at::kDouble).log();
  const auto drawn = [&](double top_p, int64_t top_k) {
    Sampling sampling = at_temperature(1);
    sampling.top_p = top_p;
    sampling.top_k = top_k;
    std::set<int64_t> out;
    for (const auto& [token, count] : draw(logits, sampling)) out.insert(token);
    return out;
  };
  EXPECT_EQ(drawn(1, 0), (std::set<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(drawn(1, 2), (std::set<int64_t>{0, 1}));
  EXPECT_EQ(drawn(1, 99), (std::set<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(drawn(0.4, 0), (std::set<int64_t>{0}));      // the likeliest stays, whatever the limit
  EXPECT_EQ(drawn(0.79, 0), (std::set<int64_t>{0, 1}));  // 0.5 is not enough, 0.8 is
  EXPECT_EQ(drawn(0.85, 0), (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(drawn(0.85, 2), (std::set<int64_t>{0, 1}));
  EXPECT_EQ(drawn(0, 0), (std::set<int64_t>{0}));

  // What is kept keeps its proportions.
  Sampling two = at_temperature(1);
  two.top_k = 2;
  EXPECT_LT(chi_square(draw(logits, two), {0.625, 0.375}, kDraws), 10.8);  // 1 degree of freedom
}

TEST(PickToken, ATokenWithoutProbabilityIsNeverDrawn) {
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor logits = at::tensor({none, 1.0, none, 0.0}, at::kDouble);
  for (const double value : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    const int64_t token = pick_token(logits, at_temperature(1), value);
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
}

TEST(Generate, GreedyTakesTheMostLikelyTokenAndStopsAtAnEnd) {
  const auto model = tiny_model();
  const ModelBatch prompts = prompts_of({{5, {3}, 4}, {6, {}, 2}});
  const auto free = generate(*model, prompts, {6, {}});
  ASSERT_EQ(free[0].size(), 6u);
  KvCache cache(2, 16);
  const Tensor first = model->logits(prompts, cache).argmax(1);
  EXPECT_EQ(free[0][0], first[0].item<int64_t>());
  EXPECT_EQ(free[1][0], first[1].item<int64_t>());

  // Ending at one of the tokens cuts the answer before its first occurrence.
  for (size_t s = 0; s < 2; ++s) {
    const int64_t end = free[s][3];
    const size_t at = static_cast<size_t>(std::find(free[s].begin(), free[s].end(), end) - free[s].begin());
    const auto ended = generate(*model, prompts, {6, {end}});
    EXPECT_EQ(ended[s], std::vector<int64_t>(free[s].begin(), free[s].begin() + static_cast<std::ptrdiff_t>(at)));
  }
}

TEST(Generate, AnAnswerDoesNotDependOnItsNeighbours) {
  const auto model = tiny_model();
  const std::vector<TinySample> samples{{5, {3}, 4}, {6, {}, 2}, {7, {1, 2}, 5}, {8, {}, 3}};
  GenerateOptions options;
  options.max_new_tokens = 12;
  options.end_tokens = {2};
  options.sampling = at_temperature(1.5, 42);
  std::map<uint64_t, std::vector<int64_t>> alone;
  for (const TinySample& sample : samples) alone[sample.key] = generate(*model, prompts_of({sample}), options)[0];
  EXPECT_NE(alone[6], alone[8]);
  const std::vector<std::vector<size_t>> orders{{0, 1, 2, 3}, {3, 1, 0, 2}, {2, 1}};
  for (const std::vector<size_t>& order : orders) {
    std::vector<TinySample> batch;
    for (const size_t i : order) batch.push_back(samples[i]);
    const auto answers = generate(*model, prompts_of(batch), options);
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(answers[i], alone[batch[i].key]) << batch[i].key;
  }
  options.sampling.seed = 43;
  EXPECT_NE(generate(*model, prompts_of({samples[0]}), options)[0], alone[5]);
}

TEST(Generate, FirstTokensOfManyPromptsFollowTheSoftmax) {
  const auto model = tiny_model();
  std::vector<TinySample> samples(4000, TinySample{1, {}, 2});
  ModelBatch prompts = prompts_of({samples[0]});
  KvCache cache(1, 8);
  const Tensor logits = model->logits(prompts, cache)[0];
  prompts = prompts_of(samples);                                                           // equal contents ...
  for (size_t s = 0; s < samples.size(); ++s) prompts.text.at("").keys[s].sample = s + 1;  // ... of different samples
  GenerateOptions options;
  options.max_new_tokens = 1;
  options.sampling = at_temperature(0.8, 3);
  std::map<int64_t, int> counts;
  for (const auto& answer : generate(*model, prompts, options)) ++counts[answer.at(0)];
  EXPECT_LT(chi_square(counts, shares_of(logits, 0.8), 4000), 29.6);  // 10 degrees of freedom, p = 0.001
}

TEST(Generate, TellsTokensAsTheyComeAndStopsWhenAsked) {
  const auto model = tiny_model();
  const ModelBatch prompts = prompts_of({{5, {3}, 4}, {6, {}, 2}});
  GenerateOptions options;
  options.max_new_tokens = 7;
  const auto whole = generate(*model, prompts, options);
  std::map<int64_t, std::vector<int64_t>> told;
  options.on_token = [&](int64_t sequence, int64_t token) {
    told[sequence].push_back(token);
    return sequence != 0 || told[0].size() < 3;
  };
  const auto stopped = generate(*model, prompts, options);
  EXPECT_EQ(stopped[0], std::vector<int64_t>(whole[0].begin(), whole[0].begin() + 3));
  EXPECT_EQ(stopped[1], whole[1]);
  EXPECT_EQ(told[0], stopped[0]);
  EXPECT_EQ(told[1], stopped[1]);
  options.max_new_tokens = 0;
  EXPECT_TRUE(generate(*model, prompts, options)[0].empty());
}

}  // namespace
}  // namespace loom::test
