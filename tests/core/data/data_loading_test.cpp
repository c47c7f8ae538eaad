// Files to steps: broken pictures are skipped, counted and named, whatever is repeated; packing keeps to the budget and
// loses nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/thread_pool.h"
#include "core/data/loader.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"
#include "tests/core/data/png_bytes.h"
#include "tests/core/data/sources.h"
#include "tests/core/step/random_steps.h"

namespace loom {
namespace {

using test::FakeKit;
using test::grey_png;
using test::line_of;
using test::TempFolder;
using test::write_bytes;

using Sources = std::vector<std::shared_ptr<Source>>;

LoaderOptions options_of(const std::string& batch, const std::string& journal = "") {
  LoaderOptions out;
  out.batch = parse_batch(ConfigValue::string(batch));
  out.seed = 4;
  out.journal = journal;
  return out;
}

// 100 pictures with captions; those of `cut` end after half of their bytes.
void write_pictures(const std::string& folder, const std::set<int>& cut) {
  std::filesystem::create_directories(folder);
  for (int i = 0; i < 100; ++i) {
    const std::string stem = concat(folder, "/", i < 10 ? "0" : "", i), png = grey_png(6, 5, i);
    write_bytes(stem + ".png", cut.count(i) > 0 ? png.substr(0, png.size() / 2) : png);
    write_bytes(stem + ".txt", concat("number ", i));
  }
}

std::vector<std::string> names_of(const LoadedStep& step) {
  std::vector<std::string> out;
  for (const Verdict& verdict : step.plan.samples) out.push_back(verdict.name);
  return out;
}

TEST(DataLoading, ThreeOfAHundredPicturesAreCutOff) {
  const TempFolder folder;
  write_pictures(folder / "pics", {7, 40, 93});
  FakeKit kit;
  ThreadPool pool(3);
  const auto sources = [&] { return Sources{test::source_from("path: \"" + (folder / "pics") + "\"")}; };
  std::vector<std::vector<std::string>> first;
  LoaderState after_first;
  {
    StepLoader loader(sources(), kit.preparer, pool, options_of("97 samples", folder / "skips.jsonl"));
    for (int epoch = 0; epoch < 2; ++epoch) {
      first.push_back(names_of(loader.next()));
      EXPECT_EQ(std::set<std::string>(first.back().begin(), first.back().end()).size(), 97u);
      if (epoch == 0) after_first = loader.state();
    }
    std::map<std::string, std::string> reasons;
    for (const SkipRecord& skip : loader.skips()) reasons[skip.name] = skip.reason;
    EXPECT_EQ(reasons.size(), 3u);
    for (const char* i : {"7", "40", "93"}) {
      const std::string file = std::string(i).size() < 2 ? std::string("0") + i : i;
      EXPECT_HAS(reasons[std::string("train.0#") + i], folder / ("pics/" + file + ".png"));
    }
    const std::vector<SkipRecord> skips = loader.skips();
    EXPECT_EQ(std::count_if(skips.begin(), skips.end(), [](const SkipRecord& skip) { return skip.position < 100; }), 3)
        << "of the first epoch";
    EXPECT_EQ(loader.state().skipped, static_cast<int64_t>(skips.size()));
    EXPECT_EQ(loader.state().left_out, 0);
  }
  // Mended since: a rerun and a resume still go the same way, by the journal.
  write_pictures(folder / "pics", {});
  {
    StepLoader rerun(sources(), kit.preparer, pool, options_of("97 samples", folder / "skips.jsonl"));
    for (const auto& names : first) EXPECT_EQ(names_of(rerun.next()), names);
    StepLoader resumed(sources(), kit.preparer, pool, options_of("97 samples", folder / "skips.jsonl"));
    resumed.restore(after_first);
    EXPECT_EQ(names_of(resumed.next()), first[1]);
  }
  LoaderOptions strict = options_of("50 samples");
  strict.max_skip_rate = 0.02;
  write_pictures(folder / "pics", {7, 40, 93});
  StepLoader stopping(sources(), kit.preparer, pool, strict);
  const std::string text = line_of<UserError>([&] {
    for (int step = 0; step < 4; ++step) stopping.next();
  });
  EXPECT_HAS(text, "3 of 100 samples were skipped (3 %), more than data.max_skip_rate = 0.02");
  for (const char* name : {"train.0#7: ", "train.0#40: ", "train.0#93: "}) EXPECT_HAS(text, name);
}

TEST(DataLoading, AChatFileWithEveryKindOfBadLine) {
  const TempFolder folder;
  write_bytes(folder / "a.png", grey_png(2, 2, 1));
  std::string text = "\xef\xbb\xbf";
  const std::vector<std::string> bad = {
      R"({"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"b"}],"images":[]})",
      "{\"text\":\"caf\xe9\"}",
      R"({"text":)",
      R"({"txt":"a"})",
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""}]})",
      R"({"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"b"}],"image":"gone.png"})"};
  for (int i = 0; i < 60; ++i) {
    text += R"({"messages":[{"role":"user","content":"<image>)" + std::to_string(i) +
            R"("},{"role":"assistant","content":"b"}],"image":"a.png"})" + "\r\n";
    if (i % 10 == 0) text += bad[static_cast<size_t>(i / 10)] + "\r\n\r\n";
  }
  text += R"({"messages":[{"role":"user","content":"only a question"}]})";
  write_bytes(folder / "x.jsonl", text);
  FakeKit kit;
  ThreadPool pool(2);
  LoaderOptions options = options_of("60 samples");
  options.shuffle = false;
  options.max_skip_rate = 0.2;
  StepLoader loader({test::source_from("path: \"" + (folder / "x.jsonl") + "\"")}, kit.preparer, pool, options);
  EXPECT_EQ(loader.next().samples.size(), 60u);
  EXPECT_EQ(loader.state().skipped, 6);
  const std::vector<SkipRecord> skips = loader.skips();
  ASSERT_EQ(skips.size(), 6u);
  for (size_t i = 0; i < skips.size(); ++i)
    EXPECT_HAS(skips[i].reason, concat(folder / "x.jsonl", ":", 2 + 12 * i, ": "));
  loader.next();
  EXPECT_EQ(loader.state().left_out, 1) << "no supervised token";
}

// Samples of text and pictures, short and long.
class MixedSource : public test::FakeSource {
 public:
  MixedSource(int64_t size, uint64_t seed) : FakeSource("train.0", size), seed_(seed) {}
  RawSample read(int64_t index) const override {
    test::Draws draws(seed_ * 1000 + static_cast<uint64_t>(index));
    RawSample out{sample_key(index), sample_name(index), {}};
    const bool chat = draws.below(2) == 0;
    if (chat) out.parts.push_back(SamplePart::make_turn_begin("assistant"));
    for (int64_t part = draws.between(1, 5); part > 0; --part) {
      if (draws.below(3) == 0) {
        const int64_t side = draws.below(8) == 0 ? 20 : 4;
        out.parts.push_back(
            SamplePart::make_media(test::fake_picture(draws.between(1, side), draws.between(1, side), index)));
      } else {
        const int64_t longest = draws.below(10) == 0 ? 150 : 12;
        out.parts.push_back(
            SamplePart::make_text(std::string(static_cast<size_t>(draws.between(1, longest)), 'a'), true));
      }
    }
    out.parts.push_back(SamplePart::make_text("z", true));
    if (chat) out.parts.push_back(SamplePart::make_turn_end(true));
    return out;
  }

 private:
  uint64_t seed_;
};

int64_t rows_when_unlimited(const MixedSource& source, int64_t index, const FakeKit& kit) {
  PreparerOptions options = kit.preparer.options();
  options.budget = 1'000'000;
  return Preparer(options).prepare(source, index).verdict.tokens;
}

TEST(DataLoading, PackingKeepsToTheBudgetAndLosesNothing) {
  constexpr int64_t kBudget = 120;
  int64_t shrunk = 0, left_out = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const OverLong policy : {OverLong::drop, OverLong::shrink_media}) {
      FakeKit kit(kBudget, policy);
      ThreadPool pool(2);
      const auto source = std::make_shared<MixedSource>(150, seed);
      StepLoader loader(Sources{source}, kit.preparer, pool, options_of("500 tokens"));
      std::map<std::string, int> seen;
      while (loader.state().position < 150) {
        const LoadedStep step = loader.next();
        std::vector<int> placed(step.samples.size(), 0);
        for (const MicrobatchPlan& microbatch : step.plan.microbatches) {
          EXPECT_LE(microbatch.tokens, kBudget);
          int64_t rows = 0;
          for (const PlacedSample& sample : microbatch.samples) {
            const PreparedSample& content = step.samples[static_cast<size_t>(sample.sample)];
            ++placed[static_cast<size_t>(sample.sample)];
            rows += content.verdict.tokens;
            ASSERT_EQ(sample.pieces.size(), 1u) << "on one rank a sample, and so every span of media, is whole";
            EXPECT_EQ(sample.pieces[0].rows, content.verdict.tokens);
            EXPECT_EQ(static_cast<int64_t>(content.tokens.size()), content.verdict.tokens);
            int64_t before = 0;
            for (size_t i = 0; i < content.verdict.items.size(); ++i) {
              const ItemPlace& item = content.verdict.items[i];
              EXPECT_GE(item.begin, before);
              EXPECT_LE(item.begin + item.slots, content.verdict.tokens);
              before = item.begin + item.slots;
              EXPECT_EQ(content.media[i].size(0), item.slots);
            }
          }
          EXPECT_EQ(rows, microbatch.tokens);
        }
        EXPECT_EQ(placed, std::vector<int>(step.samples.size(), 1));
        for (const Verdict& verdict : step.plan.samples) {
          const int64_t index = std::stoll(verdict.name.substr(8)), whole = rows_when_unlimited(*source, index, kit);
          EXPECT_LE(verdict.tokens, std::min(whole, kBudget)) << "shrinking never adds tokens";
          if (whole <= kBudget) {
            EXPECT_EQ(verdict.tokens, whole);
          }
          shrunk += whole > kBudget ? 1 : 0;
          if (verdict.position < 150) ++seen[verdict.name];
        }
      }
      for (const SkipRecord& skip : loader.skips()) {
        EXPECT_TRUE(skip.left_out);
        EXPECT_HAS(skip.reason, "tokens exceed data.budget = 120");
        ++left_out;
        if (skip.position < 150) ++seen[skip.name];
      }
      EXPECT_EQ(seen.size(), 150u);
      for (const auto& [name, count] : seen) EXPECT_EQ(count, 1) << name;
    }
  }
  EXPECT_GT(shrunk, 20);
  EXPECT_GT(left_out, 20);
}

}  // namespace
}  // namespace loom
