// Steps do not depend on speed, nothing is lost or seen twice over any checkpoint, and skips are counted, kept and
// limited.
#include "core/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::FakeKit;
using test::FakeSource;
using test::line_of;
using test::TempFolder;

using Sources = std::vector<std::shared_ptr<Source>>;
using Keys = std::vector<std::pair<uint64_t, uint64_t>>;  // (position, sample)

LoaderOptions options_of(const std::string& batch, const std::string& journal = "") {
  LoaderOptions out;
  out.batch = parse_batch(ConfigValue::string(batch));
  out.seed = 9;
  out.journal = journal;
  return out;
}

std::shared_ptr<FakeSource> source_of(int64_t size, std::set<int64_t> broken = {}, uint64_t delays = 0) {
  std::shared_ptr<FakeSource> out = std::make_shared<FakeSource>("train.0", size);
  out->broken = std::move(broken);
  out->delay_seed = delays;
  return out;
}

Keys keys_of(const LoadedStep& step) {
  Keys out;
  for (const Verdict& verdict : step.plan.samples) out.push_back({verdict.position, verdict.sample});
  return out;
}

// Everything about a step that must not depend on timing.
std::string text_of(const LoadedStep& step) {
  std::string out = concat("step ", step.plan.step, " next ", step.plan.next_position, " supervised ",
                           step.plan.supervised, " tokens ", step.plan.tokens, "\n");
  for (const PreparedSample& sample : step.samples) {
    out += concat(sample.verdict.position, " ", sample.verdict.name, " ", sample.tokens.size(), " ",
                  sample.media.at(0).sum().item<double>(), "\n");
  }
  for (const MicrobatchPlan& microbatch : step.plan.microbatches) {
    out += concat(microbatch.tokens, ":");
    for (const PlacedSample& placed : microbatch.samples) out += concat(" ", placed.sample);
    out += "\n";
  }
  return out + step.after.json();
}

TEST(StepLoader, BatchesOfSamples) {
  FakeKit kit;
  ThreadPool pool(2);
  StepLoader loader(Sources{source_of(20)}, kit.preparer, pool, options_of("8 samples"));
  std::map<std::string, int> epoch;
  for (int64_t step = 1; step <= 5; ++step) {
    const LoadedStep loaded = loader.next();
    EXPECT_EQ(loaded.plan.step, step);
    ASSERT_EQ(loaded.samples.size(), 8u);
    EXPECT_EQ(loaded.plan.next_position, static_cast<uint64_t>(8 * step));
    int64_t tokens = 0, supervised = 0, packed = 0;
    std::vector<int64_t> placed;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(loaded.samples[i].verdict.name, loaded.plan.samples[i].name);
      ++epoch[loaded.plan.samples[i].name];
      tokens += static_cast<int64_t>(loaded.samples[i].tokens.size());
      for (const uint8_t s : loaded.samples[i].supervised) supervised += s;
    }
    EXPECT_EQ(loaded.plan.tokens, tokens);
    EXPECT_EQ(loaded.plan.supervised, supervised);
    for (const MicrobatchPlan& microbatch : loaded.plan.microbatches) {
      EXPECT_LE(microbatch.tokens, 64);
      EXPECT_GT(microbatch.samples.size(), 0u);
      int64_t sum = 0;
      for (const PlacedSample& sample : microbatch.samples) {
        sum += static_cast<int64_t>(loaded.samples[static_cast<size_t>(sample.sample)].tokens.size());
        placed.push_back(sample.sample);
      }
      EXPECT_EQ(microbatch.tokens, sum);
      packed += sum;
    }
    EXPECT_EQ(packed, tokens);
    std::sort(placed.begin(), placed.end());
    for (size_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i], static_cast<int64_t>(i));
    EXPECT_EQ(placed.size(), 8u);
  }
  EXPECT_EQ(epoch.size(), 20u);  // 40 samples = two epochs
  for (const auto& [name, count] : epoch) EXPECT_EQ(count, 2) << name;
  EXPECT_EQ(loader.state().epochs.at("train.0"), 2u);
}

TEST(StepLoader, BatchesOfTokensAreFilledUpToTheirSize) {
  FakeKit kit;
  ThreadPool pool(2);
  StepLoader loader(Sources{source_of(500)}, kit.preparer, pool, options_of("100 tokens"));
  uint64_t next = 0;
  for (int step = 0; step < 40; ++step) {
    const LoadedStep loaded = loader.next();
    ASSERT_GT(loaded.samples.size(), 0u);
    EXPECT_LE(loaded.plan.tokens, 100);
    EXPECT_GT(loaded.plan.tokens, 100 - 20);  // the longest sample has 19 tokens
    EXPECT_EQ(loaded.plan.samples.front().position, next);
    next = loaded.plan.next_position;
  }
  StepLoader tiny(Sources{source_of(50)}, kit.preparer, pool, options_of("1 tokens"));
  EXPECT_EQ(tiny.next().samples.size(), 1u);  // a sample larger than the batch goes alone
}

TEST(StepLoader, SpeedNeverChangesAStep) {
  FakeKit kit;
  std::vector<std::string> reference;
  for (const int threads : {1, 2, 5}) {
    for (const uint64_t delays : {uint64_t{0}, uint64_t{1}, uint64_t{2}}) {
      ThreadPool pool(threads);
      LoaderOptions options = options_of("150 tokens");
      options.prefetch_steps = static_cast<int64_t>(delays) * 2;
      options.prefetch_bytes = delays == 1 ? 1 : int64_t{1} << 30;
      StepLoader loader(Sources{source_of(300, {3, 50, 77, 200}, delays)}, kit.preparer, pool, options);
      std::vector<std::string> texts;
      for (int step = 0; step < 12; ++step) texts.push_back(text_of(loader.next()));
      for (const SkipRecord& skip : loader.skips())
        texts.push_back(concat(skip.position, skip.name, skip.reason, skip.step));
      if (reference.empty()) reference = texts;
      EXPECT_EQ(texts, reference) << threads << " threads, delays " << delays;
    }
  }
}

// Over every step of a packed run: save, resume, and the union of what was consumed is exactly the order, each sample
// once.
TEST(StepLoader, ResumeAfterEveryStepOfAPackedRunIsExact) {
  FakeKit kit;
  ThreadPool pool(2);
  const auto make = [&] {
    return std::make_unique<StepLoader>(Sources{source_of(170, {4, 90})}, kit.preparer, pool, options_of("120 tokens"));
  };
  constexpr int kSteps = 50;
  std::vector<std::string> whole;
  std::vector<LoaderState> states = {make()->state()};
  Keys all;
  const std::unique_ptr<StepLoader> loader = make();
  for (int step = 0; step < kSteps; ++step) {
    const LoadedStep loaded = loader->next();
    whole.push_back(text_of(loaded));
    const Keys keys = keys_of(loaded);
    all.insert(all.end(), keys.begin(), keys.end());
    EXPECT_EQ(loaded.after, loader->state());
    states.push_back(parse_loader_state(loaded.after.json(), "test"));
    EXPECT_EQ(states.back(), loaded.after);
  }
  Keys expected;
  std::set<uint64_t> skipped;
  for (const SkipRecord& skip : loader->skips()) skipped.insert(skip.position);
  const FakeSource names("train.0", 170);
  for (uint64_t position = 0; position < loader->state().position; ++position) {
    if (skipped.count(position) == 0)
      expected.push_back({position, names.sample_key(loader->order().at(position).index)});
  }
  EXPECT_EQ(all, expected);
  EXPECT_GE(skipped.size(), 4u);

  for (int k = 0; k <= kSteps; ++k) {
    const std::unique_ptr<StepLoader> resumed = make();
    resumed->restore(states[static_cast<size_t>(k)]);
    EXPECT_EQ(resumed->state(), states[static_cast<size_t>(k)]) << "save, restore, save without a step";
    for (int step = k; step < std::min(k + 3, kSteps); ++step)
      ASSERT_EQ(text_of(resumed->next()), whole[static_cast<size_t>(step)]) << "after " << k;
  }
  // One loader that goes back and forth, with samples of another place already being prepared.
  for (const int k : {7, 3, 49, 0}) {
    loader->restore(states[static_cast<size_t>(k)]);
    ASSERT_EQ(text_of(loader->next()), whole[static_cast<size_t>(k)]);
  }
}

TEST(StepLoader, SkipsAreCountedOncePerEpochAndOthersAreAllSeen) {
  FakeKit kit;
  ThreadPool pool(2);
  StepLoader loader(Sources{source_of(100, {10, 20, 30})}, kit.preparer, pool, options_of("97 samples"));
  for (int epoch = 1; epoch <= 3; ++epoch) {
    std::set<std::string> names;
    for (const Verdict& verdict : loader.next().plan.samples) names.insert(verdict.name);
    EXPECT_EQ(names.size(), 97u);
    EXPECT_EQ(names.count("train.0#10"), 0u);
  }
  // The third step ends at its 97th good sample; a bad one behind it belongs to the next step.
  EXPECT_GE(loader.state().skipped, 6);
  EXPECT_LE(loader.state().skipped, 9);
  EXPECT_EQ(static_cast<int64_t>(loader.skips().size()), loader.state().skipped);
  EXPECT_EQ(loader.skips()[0].reason, "cannot decode it");
}

TEST(StepLoader, JournalIsReplayedOnRerunAndResume) {
  FakeKit kit;
  ThreadPool pool(2);
  const TempFolder folder;
  const std::string journal = folder / "skips.jsonl";
  std::vector<std::string> first;
  LoaderState after_two;
  {
    StepLoader loader(Sources{source_of(200, {10, 20, 30})}, kit.preparer, pool, options_of("50 samples", journal));
    for (int step = 0; step < 4; ++step) {
      first.push_back(text_of(loader.next()));
      if (step == 1) after_two = loader.state();
    }
  }
  const std::string lines = test::read_bytes(journal);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_HAS(lines, "\"name\":\"train.0#10\"");
  test::write_bytes(journal, lines + "{\"position\": 5");  // torn by a crash

  // By now the files could be read: the steps stay what they were.
  {
    StepLoader rerun(Sources{source_of(200)}, kit.preparer, pool, options_of("50 samples", journal));
    for (int step = 0; step < 4; ++step) EXPECT_EQ(text_of(rerun.next()), first[static_cast<size_t>(step)]);
    EXPECT_EQ(rerun.skips().size(), 3u);
  }
  EXPECT_EQ(test::read_bytes(journal), lines) << "nothing is written twice";
  {
    StepLoader resumed(Sources{source_of(200)}, kit.preparer, pool, options_of("50 samples", journal));
    resumed.restore(after_two);
    EXPECT_EQ(text_of(resumed.next()), first[2]);
    EXPECT_EQ(text_of(resumed.next()), first[3]);
    EXPECT_EQ(resumed.skips().size(), 3u);
  }
  test::write_bytes(journal, "nonsense\n");
  EXPECT_HAS(line_of<UserError>(
                 [&] { StepLoader(Sources{source_of(9)}, kit.preparer, pool, options_of("4 samples", journal)); }),
             journal + ":1: not a line of a skip journal");
  EXPECT_HAS(line_of<EnvironmentError>([&] {
               StepLoader loader(Sources{source_of(9, {1, 2, 3})}, kit.preparer, pool,
                                 options_of("6 samples", folder / "no/such/skips.jsonl"));
               loader.next();
               loader.next();
             }),
             "no/such/skips.jsonl");
}

TEST(StepLoader, TooManySkipsStopTheRunAndNameTheFirst) {
  FakeKit kit;
  ThreadPool pool(2);
  std::set<int64_t> tenth;
  for (int64_t i = 0; i < 1000; i += 10) tenth.insert(i);
  StepLoader loader(Sources{source_of(1000, tenth)}, kit.preparer, pool, options_of("40 samples"));
  EXPECT_EQ(loader.next().samples.size(), 40u);  // fewer than 100 samples judge nothing
  const std::string text = line_of<UserError>([&] {
    for (int step = 0; step < 10; ++step) loader.next();
  });
  EXPECT_HAS(text, "samples were skipped (");
  EXPECT_HAS(text, "more than data.max_skip_rate = 0.05; train.0#");
  EXPECT_HAS(text, ": cannot decode it");
  LoaderOptions patient = options_of("40 samples");
  patient.max_skip_rate = 0.2;
  StepLoader second(Sources{source_of(1000, tenth)}, kit.preparer, pool, patient);
  for (int step = 0; step < 10; ++step) EXPECT_NO_THROW(second.next());

  std::set<int64_t> all;
  for (int64_t i = 0; i < 30; ++i) all.insert(i);
  patient.max_skip_rate = 1;
  StepLoader hopeless(Sources{source_of(30, all)}, kit.preparer, pool, patient);
  EXPECT_HAS(line_of<UserError>([&] { hopeless.next(); }), "none of the last 100 samples can be used; train.0#");
}

TEST(StepLoader, OverLongSamplesStopOrAreLeftOutWithoutCountingAsDefects) {
  FakeKit strict(12), lenient(12, OverLong::drop);  // samples have 6 to 19 tokens
  ThreadPool pool(2);
  StepLoader stopping(Sources{source_of(200)}, strict.preparer, pool, options_of("30 samples"));
  EXPECT_HAS(line_of<UserError>([&] { stopping.next(); }), "exceed data.budget = 12");
  EXPECT_EQ(stopping.state().position, 0u) << "a failed step leaves no trace";
  StepLoader dropping(Sources{source_of(200)}, lenient.preparer, pool, options_of("30 samples"));
  for (int step = 0; step < 6; ++step) {
    for (const Verdict& verdict : dropping.next().plan.samples) EXPECT_LE(verdict.tokens, 12);
  }
  EXPECT_EQ(dropping.state().skipped, 0);
  EXPECT_GT(dropping.state().left_out, 50);
  EXPECT_TRUE(dropping.skips()[0].left_out);
}

TEST(StepLoader, WeightedSourcesAndFixedOrder) {
  FakeKit kit;
  ThreadPool pool(2);
  std::shared_ptr<FakeSource> a = std::make_shared<FakeSource>("train.0", 50),
                              b = std::make_shared<FakeSource>("train.1", 10);
  a->given_weight = 3;
  LoaderOptions options = options_of("40 samples");
  options.shuffle = false;
  StepLoader loader(Sources{a, b}, kit.preparer, pool, options);
  const LoadedStep step = loader.next();
  EXPECT_EQ(std::count_if(step.plan.samples.begin(), step.plan.samples.end(),
                          [](const Verdict& v) { return v.name.rfind("train.0#", 0) == 0; }),
            30);
  EXPECT_EQ(loader.state().epochs.at("train.1"), 1u);
  EXPECT_EQ(loader.state().epochs.at("train.0"), 0u);
}

TEST(StepLoader, ResumingWithOtherDataIsRefused) {
  FakeKit kit;
  ThreadPool pool(2);
  StepLoader loader(Sources{source_of(20)}, kit.preparer, pool, options_of("8 samples"));
  loader.next();
  const LoaderState state = loader.state();
  StepLoader smaller(Sources{source_of(19)}, kit.preparer, pool, options_of("8 samples"));
  EXPECT_HAS(line_of<UserError>([&] { smaller.restore(state); }),
             "data source train.0 had 20 samples in the checkpoint and has 19 now");
  LoaderOptions seeded = options_of("8 samples");
  seeded.seed = 10;
  StepLoader other(Sources{source_of(20)}, kit.preparer, pool, seeded);
  EXPECT_HAS(line_of<UserError>([&] { other.restore(state); }), "seed 9, the recipe says 10");
  EXPECT_HAS(line_of<UserError>([&] { parse_loader_state("{}", "manifest.json"); }),
             "manifest.json: not a loader state");
}

TEST(StepLoader, ASourceWithoutEncoderIsFoundAtTheStart) {
  FakeKit kit;
  ThreadPool pool(1);
  class Sound : public FakeSource {
   public:
    using FakeSource::FakeSource;
    std::vector<std::string> modalities() const override { return {"audio"}; }
  };
  EXPECT_HAS(line_of<UserError>([&] {
               StepLoader(Sources{std::make_shared<Sound>("train.1", 5)}, kit.preparer, pool, options_of("4 samples"));
             }),
             "data source train.1: has media of modality 'audio'");
}

TEST(ParseBatch, GoodAndBad) {
  const auto parsed = [](const char* text) { return parse_batch(ConfigValue::string(text)).str(); };
  EXPECT_EQ(parsed("64 samples"), "64 samples");
  EXPECT_EQ(parsed("1 sample"), "1 samples");
  EXPECT_EQ(parsed("262144 tokens"), "262144 tokens");
  EXPECT_EQ(parsed(" 262,144   tokens "), "262144 tokens");
  EXPECT_EQ(parsed("12"), "12 samples");
  EXPECT_EQ(parse_batch(ConfigValue::integer(32)).str(), "32 samples");
  ConfigValue value = ConfigValue::string("64 tokns");
  value.mark = {"r.yaml", 3, 9};
  value.path = "train.batch";
  EXPECT_HAS(
      line_of<UserError>([&] { parse_batch(value); }),
      "r.yaml:3:9: train.batch: expected '64 samples' or '262144 tokens', found '64 tokns'; did you mean 'tokens'?");
  for (const char* bad :
       {"", "samples", "0 samples", "-3 samples", "1.5 samples", "1 2 3", "9999999999999999999 tokens"}) {
    EXPECT_HAS(line_of<UserError>([&] { parse_batch(ConfigValue::string(bad)); }), "expected '64 samples'");
  }
  EXPECT_HAS(line_of<UserError>([&] { parse_batch(ConfigValue::list()); }), "expected '64 samples'");
}

}  // namespace
}  // namespace loom
