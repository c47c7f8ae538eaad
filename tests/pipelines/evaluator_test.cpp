// Evaluation against direct arithmetic: whatever passes the samples are cut into, whoever prepares them.
#include "pipelines/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/data/batch_builder.h"
#include "core/model/generator.h"
#include "tests/support/tiny_model.h"

namespace loom {
namespace {

// Letters a to g are 0 to 6; then begin, end, and the borders of turns.
class LetterTokenizer : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> out;
    for (const char c : text) out.push_back(c == '\n' ? 0 : (c - 'a') % 7);
    return out;
  }
  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string out;
    for (const int64_t token : tokens) out += token < 7 ? spelling(token) : "";
    return out;
  }
  int64_t vocab_size() const override { return test::kVocab; }
  int64_t bos() const override { return 7; }
  int64_t eos() const override { return 8; }
  std::optional<int64_t> special(std::string_view spelled) const override {
    if (spelled == kTurnBegin) return 9;
    if (spelled == kTurnEnd) return 10;
    return std::nullopt;
  }
  std::string spelling(int64_t token) const override {
    return token < 7 ? std::string(1, static_cast<char>('a' + token)) : "<" + std::to_string(token) + ">";
  }
};

class ListSource : public Source {
 public:
  explicit ListSource(std::vector<RawSample> samples) : samples_(std::move(samples)) {
    for (size_t i = 0; i < samples_.size(); ++i) {
      samples_[i].key = i + 1;
      samples_[i].name = sample_name(static_cast<int64_t>(i));
    }
  }
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  const std::string& name() const override { return name_; }
  RawSample read(int64_t index) const override { return samples_[static_cast<size_t>(index)]; }

 private:
  std::string name_ = "eval.0";
  std::vector<RawSample> samples_;
};

RawSample text_sample(const std::vector<std::pair<std::string, bool>>& texts) {
  RawSample out;
  for (const auto& [text, learned] : texts) out.parts.push_back(SamplePart::make_text(text, learned));
  return out;
}

struct Kit {
  std::unique_ptr<MultimodalModel> model = test::tiny_model();
  LetterTokenizer tokenizer;
  std::vector<std::shared_ptr<Source>> sources;

  Preparer preparer(int64_t budget) const {
    PreparerOptions options;
    options.tokenizer = &tokenizer;
    options.budget = budget;
    return Preparer(options);
  }
  EvalResult run(int64_t budget, EvalOptions options = {}) const {
    options.max_new_tokens = 5;
    return evaluate(*model, tokenizer, preparer(budget), sources, options);
  }
};

Kit mixed_kit() {
  Kit kit;
  const Philox random({.seed = 8});
  std::vector<RawSample> samples;
  for (uint64_t i = 0; i < 23; ++i) {
    std::string text;
    for (uint64_t c = 0; c < 3 + i % 5; ++c) text += static_cast<char>('a' + random.below(7, 10 * i + c));
    samples.push_back(text_sample({{text, false}, {text.substr(1), true}, {"b", false}, {text.substr(2) + "c", true}}));
  }
  samples[4] = text_sample({{"abc", false}});  // nothing to learn
  kit.sources = {std::make_shared<ListSource>(samples)};
  return kit;
}

TEST(Evaluator, LossIsTheMeanOverSupervisedTokensHoweverItIsCut) {
  const Kit kit = mixed_kit();
  const Preparer preparer = kit.preparer(512);
  double sum = 0;
  int64_t supervised = 0;
  for (int64_t i = 0; i < kit.sources[0]->size(); ++i) {
    if (i == 4) continue;
    const PreparedSample sample = preparer.prepare(*kit.sources[0], i);
    sum -= kit.model->log_probs(build_batch({&sample}, batch_modalities(*kit.model))).sum().item<double>();
    supervised += sample.verdict.supervised;
  }
  ThreadPool pool(2);
  for (const int64_t budget : {512, 60, 25}) {
    for (ThreadPool* with : {static_cast<ThreadPool*>(nullptr), &pool}) {
      EvalOptions options;
      options.pool = with;
      options.batch = budget == 60 ? 4 : 250;
      const EvalResult result = kit.run(budget, options);
      EXPECT_NEAR(result.loss, sum / static_cast<double>(supervised), 1e-12) << budget;
      EXPECT_EQ(result.supervised, supervised);
      EXPECT_EQ(result.samples, 22);
      EXPECT_EQ(result.skipped, 1);
      EXPECT_NE(result.first_skip.find("eval.0#4: "), std::string::npos) << result.first_skip;
      EXPECT_FALSE(result.correct_tokens.has_value()) << "this backbone does not say";
      EXPECT_FALSE(result.token_accuracy().has_value());
    }
  }
}

TEST(Evaluator, TheTruthIsTheLastAnswerWithoutItsEnd) {
  Kit kit = mixed_kit();
  EvalOptions options;
  options.show = 100;
  const EvalResult result = kit.run(60, options);
  ASSERT_EQ(result.shown.size(), 22u);
  for (const EvalSample& sample : result.shown) {
    EXPECT_EQ(sample.truth.back(), 'c') << sample.truth;
    EXPECT_EQ(sample.prompt.back(), 'b') << sample.prompt;
  }
}

TEST(Evaluator, ExactAnswersAreThoseTheModelGives) {
  Kit kit;
  const Preparer preparer = kit.preparer(64);
  std::vector<RawSample> samples;
  for (const char* prompt : {"abc", "dd", "gfe", "ca"}) {
    const RawSample asked = text_sample({{prompt, false}});
    const PreparedSample prepared = preparer.prepare(asked);
    const auto answer = generate(*kit.model, build_prompt_batch({&prepared}, *kit.model), {5, kit.tokenizer.ends()});
    RawSample sample = asked;
    const std::string text = kit.tokenizer.decode(answer[0]);
    sample.parts.push_back(SamplePart::make_text(text.empty() ? "a" : text, true));
    samples.push_back(sample);
  }
  samples[1].parts.back().text += "a";  // one is wrong
  kit.sources = {std::make_shared<ListSource>(samples)};
  std::vector<std::string> told;
  EvalOptions options;
  options.on_answer = [&](const EvalSample& sample) { told.push_back(sample.name + (sample.correct ? "+" : "-")); };
  const EvalResult result = kit.run(64, options);
  EXPECT_EQ(result.samples, 4);
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[1], "eval.0#1-");
  EXPECT_EQ(result.exact, std::count_if(told.begin(), told.end(), [](const auto& t) { return t.back() == '+'; }));
  EXPECT_GE(result.exact, 1);
  options.generate = false;
  EXPECT_EQ(kit.run(64, options).exact, 0);
}

TEST(Evaluator, TheFirstSamplesAreAPrefix) {
  const Kit kit = mixed_kit();
  EvalOptions options;
  options.samples = 7;
  std::vector<int64_t> progress;
  options.max_new_tokens = 2;
  const EvalResult result =
      evaluate(*kit.model, kit.tokenizer, kit.preparer(64), kit.sources, options, [&](int64_t done, int64_t total) {
        progress.push_back(done);
        EXPECT_EQ(total, 7);
      });
  EXPECT_EQ(result.samples, 6);
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(progress.back(), 7);
}

}  // namespace
}  // namespace loom
