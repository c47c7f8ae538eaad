// Merges by hand, and against a trainer that counts everything anew before every merge.
#include "core/data/bpe_trainer.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/base/error.h"
#include "tests/core/checkpoint/files.h"
#include "tests/support/draws.h"

namespace loom {
namespace {

WordCounts counts_of(const std::vector<std::string>& texts, int threads = 2) {
  ThreadPool pool(threads);
  WordCounter counter(pool);
  for (const std::string& text : texts) counter.add(text);
  return counter.finish();
}

BpeModel train(const WordCounts& counts, int64_t vocab, int64_t min_frequency = 1,
               std::vector<std::string> specials = {}) {
  return train_bpe(counts, {vocab, min_frequency, std::move(specials)});
}

std::vector<std::string> learned(const BpeModel& model) { return {model.tokens.begin() + 256, model.tokens.end()}; }

using Texts = std::vector<std::string>;

TEST(BpeTrainer, MergesOfATinyCorpusByHand) {
  // "abab", " ab", " abc": ab stands 4 times; then " ab" twice; then abab and " abc" once each, abab has the smaller
  // id.
  const WordCounts counts = counts_of({"abab ab abc"});
  EXPECT_EQ(learned(train(counts, 1000)), (Texts{"ab", " ab", "abab", " abc"}));
  EXPECT_EQ(learned(train(counts, 1000, 2)), (Texts{"ab", " ab"}));
  EXPECT_EQ(learned(train(counts, 257)), (Texts{"ab"}));
  const BpeModel model = train(counts, 260, 1, {"<a>", "<b>"});
  EXPECT_EQ(learned(model), (Texts{"ab", " ab", "<a>", "<b>"}));
  EXPECT_EQ(model.specials, (std::vector<int32_t>{258, 259}));
  EXPECT_EQ(count_tokens(counts, train(counts, 1000)), 3);
}

TEST(BpeTrainer, PairsThatOverlapThemselves) {
  // aaaaa: aa aa a; of (aa, a) and (aa, aa) the one with the smaller right id; aa aaa.
  EXPECT_EQ(learned(train(counts_of({"aaaaa"}), 1000)), (Texts{"aa", "aaa", "aaaaa"}));
}

// Everything from scratch, every time.
BpeModel train_slowly(const WordCounts& counts, size_t vocab, int64_t min_frequency) {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
  for (const auto& [text, count] : counts.words) {
    words.push_back({{}, count});
    for (const char byte : text) words.back().first.push_back(static_cast<unsigned char>(byte));
  }
  while (model.tokens.size() < vocab) {
    std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
    for (const auto& [symbols, count] : words) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[{symbols[i], symbols[i + 1]}] += count;
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : pairs) {
      if (count > most) std::tie(best, most) = std::pair(pair, count);
    }
    if (most < min_frequency || most == 0) break;
    const auto result = static_cast<int32_t>(model.tokens.size());
    model.tokens.push_back(model.tokens[static_cast<size_t>(best.first)] +
                           model.tokens[static_cast<size_t>(best.second)]);
    model.merges.push_back({best.first, best.second, result});
    for (auto& [symbols, count] : words) {
      std::vector<int32_t> out;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool here = i + 1 < symbols.size() && symbols[i] == best.first && symbols[i + 1] == best.second;
        out.push_back(here ? result : symbols[i]);
        i += here ? 1 : 0;
      }
      symbols = out;
    }
  }
  return model;
}

TEST(BpeTrainer, EqualsATrainerThatCountsAnew) {
  test::Draws draws(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> texts;
    const int64_t letters = draws.between(1, 4);
    for (int64_t t = draws.between(1, 12); t > 0; --t) {
      std::string text;
      for (int64_t i = draws.between(1, 100); i > 0; --i)
        text += draws.chance(0.04) ? ' ' : static_cast<char>('a' + draws.below(letters));
      texts.push_back(text);
    }
    const WordCounts counts = counts_of(texts);
    const int64_t least = draws.between(1, 3);
    const BpeModel fast = train(counts, 400, least), slow = train_slowly(counts, 400, least);
    ASSERT_EQ(fast.tokens, slow.tokens) << "round " << round;
    ASSERT_EQ(fast.merges.size(), slow.merges.size());
    for (size_t i = 0; i < fast.merges.size(); ++i) {
      EXPECT_EQ(fast.merges[i].left, slow.merges[i].left);
      EXPECT_EQ(fast.merges[i].right, slow.merges[i].right);
      EXPECT_EQ(fast.merges[i].result, slow.merges[i].result);
    }
    EXPECT_EQ(std::set<std::string>(fast.tokens.begin(), fast.tokens.end()).size(), fast.tokens.size());
  }
}

TEST(BpeTrainer, ThreadsAndOrderOfTextsDoNotMatter) {
  std::vector<std::string> texts;
  test::Draws draws(4);
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (int k = 0; k < 2000; ++k) text += draws.chance(0.15) ? ' ' : static_cast<char>('a' + draws.below(9));
    texts.push_back(text);
  }
  const WordCounts one = counts_of(texts, 1);
  draws.shuffle(texts);
  const WordCounts three = counts_of(texts, 3);
  EXPECT_EQ(one.words, three.words);
  EXPECT_EQ(three.texts, 400);
  EXPECT_EQ(three.bytes, 800'000);
  EXPECT_EQ(train(one, 400).tokens, train(three, 400).tokens);
}

TEST(BpeTrainer, LongWordsAreCountedInPiecesBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "字";
  int64_t bytes = 0;
  for (const auto& [word, count] : counts_of({text}).words) {
    EXPECT_LE(word.size(), 512u);
    EXPECT_EQ(word.size() % 3, 0u);
    bytes += static_cast<int64_t>(word.size()) * count;
  }
  EXPECT_EQ(bytes, 3000);
}

TEST(BpeTrainer, NoTokenIsSpelledLikeASpecialOne) {
  const WordCounts counts = counts_of({"hello hello hello hello"});
  const BpeModel plain = train(counts, 1000), guarded = train(counts, 1000, 1, {"hello", "Ġhello"});
  EXPECT_EQ(std::count(plain.tokens.begin(), plain.tokens.end(), "hello"), 1);
  EXPECT_EQ(std::count(plain.tokens.begin(), plain.tokens.end(), " hello"), 1);
  EXPECT_EQ(std::count(guarded.tokens.begin(), guarded.tokens.end(), "hello"), 1);  // the special one
  EXPECT_EQ(std::count(guarded.tokens.begin(), guarded.tokens.end(), " hello"), 0);
}

TEST(BpeTrainer, OptionsThatMakeNoSense) {
  const auto refused = [](BpeTrainOptions options) {
    return test::line_of<UserError>([&] { train_bpe({}, options); });
  };
  EXPECT_HAS(refused({258, 2, {"<a>", "<b>", "<c>"}}), "vocabulary of 258: expected 259 (256 bytes, 3 special tokens)");
  EXPECT_HAS(refused({-1, 2, {}}), "vocabulary of -1");
  EXPECT_HAS(refused({300, 2, {"<a>", "<a>"}}), "special token '<a>' is given twice");
  EXPECT_HAS(refused({300, 2, {""}}), "expected some UTF-8 text");
  EXPECT_HAS(refused({300, 2, {"Ġ"}}), "how the file spells a byte");
}

TEST(BpeTrainer, NothingToLearnFromGivesTheBytes) {
  EXPECT_EQ(train({}, 1000).tokens.size(), 256u);
  EXPECT_EQ(train(counts_of({"", ""}), 1000).tokens.size(), 256u);
}

}  // namespace
}  // namespace loom
