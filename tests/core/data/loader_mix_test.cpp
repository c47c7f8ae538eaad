// A mix that is changed while a run goes on: from the next step, nothing lost or doubled, and the same again after a
// resume from anywhere, before the change as well as after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/data/loader.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::FakeKit;
using test::FakeSource;
using test::line_of;
using test::TempFolder;

using Names = std::vector<std::string>;

class LoaderMix : public testing::Test {
 protected:
  std::unique_ptr<StepLoader> make(std::vector<MixSegment> mix = {}, const std::string& journal = "",
                                   int64_t sizes = 40) {
    LoaderOptions options;
    options.batch = parse_batch(ConfigValue::string("24 samples"));
    options.seed = 9;
    options.mix = std::move(mix);
    options.mix_journal = journal;
    std::vector<std::shared_ptr<Source>> sources;
    for (const char* name : {"photos", "text"}) {
      auto source = std::make_shared<FakeSource>(name, sizes);
      source->delay_seed = 3;
      if (sources.empty()) source->broken = {5, 6};
      sources.push_back(source);
      sizes *= 3;
    }
    return std::make_unique<StepLoader>(std::move(sources), kit_.preparer, pool_, options);
  }
  static Names names_of(const LoadedStep& step) {
    Names out;
    for (const Verdict& verdict : step.plan.samples) out.push_back(concat(verdict.position, " ", verdict.name));
    out.push_back(step.after.json());
    return out;
  }
  static int64_t photos_in(const LoadedStep& step) {
    return std::count_if(step.plan.samples.begin(), step.plan.samples.end(),
                         [](const Verdict& v) { return v.name.rfind("photos#", 0) == 0; });
  }

  FakeKit kit_;
  ThreadPool pool_{3};
  TempFolder folder_;
};

TEST_F(LoaderMix, AChangeIsForTheNextStepAndNothingIsLost) {
  const auto loader = make();
  std::map<std::string, int> seen;
  const auto take = [&](int steps) {
    int64_t photos = 0;
    for (int step = 0; step < steps; ++step) {
      const LoadedStep loaded = loader->next();
      photos += photos_in(loaded);
      for (const Verdict& verdict : loaded.plan.samples) ++seen[verdict.name];
    }
    return photos;
  };
  take(3);
  const uint64_t position = loader->state().position;
  EXPECT_EQ(loader->change_mix({3, 1}, "a"), std::optional<uint64_t>(position));
  EXPECT_TRUE(loader->state().changes.empty()) << "no delivered step knows of it";
  EXPECT_EQ(loader->change_mix({1, 3}, "a"), std::nullopt) << "a request is carried out once";
  const int64_t skipped = loader->state().skipped;
  const int64_t photos = take(4);
  EXPECT_NEAR(static_cast<double>(photos + loader->state().skipped - skipped), 72, 3);
  EXPECT_EQ(loader->state().changes, (std::vector<MixSegment>{{position, {3, 1}}}));
  EXPECT_GE(loader->change_mix({0, 1}, "b").value(), position + 96);
  EXPECT_EQ(take(4), 0);
  EXPECT_EQ(loader->state().changes.size(), 2u);
  // Text has ended its first pass: every sample of it was there, and none more often than passes were begun.
  const uint64_t epoch = loader->state().epochs.at("text");
  ASSERT_GE(epoch, 1u);
  int64_t texts = 0;
  for (const auto& [name, count] : seen) {
    if (name.rfind("text#", 0) != 0) continue;
    ++texts;
    EXPECT_LE(count, static_cast<int>(epoch) + 1) << name;
  }
  EXPECT_EQ(texts, 120);
}

TEST_F(LoaderMix, ResumeFromAnywhereMakesTheSameChangesAgain) {
  const std::string journal = folder_ / "mix.jsonl";
  const std::vector<MixSegment> mix = mix_segments({{150, {1, 4}, true}, {0, {1, 1}, false}});
  std::vector<Names> whole;
  std::vector<LoaderState> states;
  {
    const auto loader = make(mix, journal);
    states.push_back(loader->state());
    for (int step = 1; step <= 14; ++step) {
      if (step == 4) loader->change_mix({1, 7}, "before a");  // nothing comes of it
      if (step == 4) loader->change_mix({5, 1}, "a");
      if (step == 5) loader->change_mix({0, 1}, "b");
      if (step == 10) loader->change_mix({0.25, 0.5}, "c");
      whole.push_back(names_of(loader->next()));
      states.push_back(parse_loader_state(loader->state().json(), "test"));
      EXPECT_EQ(states.back(), loader->state());
    }
  }
  for (size_t k = 0; k < states.size(); ++k) {
    const auto resumed = make(mix, journal);
    resumed->restore(states[k]);
    for (size_t step = k; step < std::min<size_t>(k + 4, whole.size()); ++step)
      ASSERT_EQ(names_of(resumed->next()), whole[step]) << "after " << k << ", step " << step + 1;
  }
  // A run that begins again in the same folder; and one that goes back and forth.
  const auto rerun = make(mix, journal);
  for (const Names& names : whole) ASSERT_EQ(names_of(rerun->next()), names);
  for (const size_t k : {12, 2, 5, 0}) {
    rerun->restore(states[k]);
    ASSERT_EQ(names_of(rerun->next()), whole[k]) << k;
  }
  // Without the journal, a checkpoint knows what was before it.
  for (const size_t k : {9, 13}) {
    const auto elsewhere = make(mix);
    elsewhere->restore(states[k]);
    EXPECT_EQ(names_of(elsewhere->next()) == whole[k], k == 13);  // the third change follows the 9th step
    EXPECT_EQ(elsewhere->state().changes.size(), k == 9 ? 2u : 3u);
  }
  // A change takes the place of those that were to come.
  {
    const auto other = make(mix, journal);
    other->restore(states[6]);
    other->change_mix({1, 0}, "d");
    for (int step = 0; step < 6; ++step) EXPECT_EQ(photos_in(other->next()), 24);
    EXPECT_EQ(other->state().changes.size(), 3u);
    EXPECT_EQ(other->state().changes.back().weights, (std::vector<double>{1, 0}));
  }
  const auto after = make(mix, journal);
  after->restore(states[6]);
  for (int step = 0; step < 6; ++step) EXPECT_EQ(photos_in(after->next()), 24);
}

TEST_F(LoaderMix, InMemoryTheJournalKeepsAChangeToo) {
  const auto loader = make();
  loader->next();
  const LoaderState before = loader->state();
  loader->change_mix({1, 0}, "a");
  for (int step = 0; step < 2; ++step) EXPECT_EQ(photos_in(loader->next()), 24);
  loader->restore(before);
  EXPECT_EQ(photos_in(loader->next()), 24);
}

TEST_F(LoaderMix, OtherMixesAndDamagedJournalsAreRefused) {
  const auto loader = make({{0, {1, 1}}});
  loader->next();
  EXPECT_HAS(line_of<UserError>([&] {
               make({{0, {1, 2}}})->restore(loader->state());
             }),
             "data.mix is not what the checkpoint was made with; a run resumes only with the data it was started with; "
             "`omniloom mix RUN NAME=WEIGHT ...`");
  EXPECT_HAS(line_of<UserError>([&] { make()->restore(loader->state()); }), "data.mix");
  const std::string journal = folder_ / "mix.jsonl";
  const auto refusal = [&](const std::string& text) {
    test::write_bytes(journal, text);
    return line_of<UserError>([&] { make({}, journal); });
  };
  EXPECT_HAS(refusal("nonsense\n"), journal + ":1: not a change of this run's mix: ");
  const std::string good = R"({"position":5,"step":1,"weights":{"photos":1,"text":0},"id":"x"})";
  EXPECT_HAS(refusal(good + "\n" + R"({"position":7,"step":1,"weights":{"photo":1},"id":"y"})" + "\n"),
             journal + ":2: not a change of this run's mix: no data source 'photo'; did you mean 'photos'?");
  EXPECT_HAS(refusal(R"({"position":7,"step":1,"weights":{"photos":-1},"id":"y"})"), "weight -1 of photos");
  EXPECT_HAS(refusal(R"({"position":7,"step":1,"weights":{"photos":0},"id":"y"})"), "no weight is above 0");
  test::write_bytes(journal, good + "\n");
  const auto fine = make({}, journal);
  EXPECT_EQ(fine->order().changes(), (std::vector<MixSegment>{{5, {1, 0}}}));
  EXPECT_HAS(line_of<UserError>([] {
               parse_loader_state(R"({"position":0,"next_step":1,"seen":0,"skipped":0,"left_out":0,"epochs":{},"seed":1,
                 "shuffle":true,"sources":[{"name":"a","size":3,"weight":0}],"mix":[{"position":0,"weights":[1,2]}]})",
                                  "manifest.json");
             }),
             "2 weights for 1 sources");
}

}  // namespace
}  // namespace loom
