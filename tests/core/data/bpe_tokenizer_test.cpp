// Any text comes back byte for byte, special tokens never come out of text, and merges are applied as defined however
// long a word is and however many threads ask.
#include "core/data/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "core/base/error.h"
#include "core/data/bpe_trainer.h"
#include "core/data/pretokenizer.h"
#include "tests/core/checkpoint/files.h"
#include "tests/support/draws.h"

namespace loom {
namespace {

const std::vector<std::string>& scripts() {
  static const std::vector<std::string> texts = {
      "The quick brown fox doesn't jump; it'll wait 42 days.",
      "Zwölf Boxkämpfer jagen Viktor über den Sylter Deich",
      "Στο τέλος, η αλήθεια",
      "Съешь же ещё этих мягких французских булок",
      "אָלֶף־בֵּית עברי",
      "نص عربي مع أرقام ١٢٣",
      "यह हिन्दी में एक वाक्य है",
      "এটি বাংলা",
      "ਇਹ ਪੰਜਾਬੀ ਹੈ",
      "இது தமிழ்",
      "ఇది తెలుగు",
      "ಇದು ಕನ್ನಡ",
      "ഇത് മലയാളം",
      "นี่คือภาษาไทย",
      "ນີ້ແມ່ນພາສາລາວ",
      "ဒါက မြန်မာ",
      "ეს ქართულია",
      "Սա հայերեն է",
      "ይህ አማርኛ ነው",
      "東京は日本の首都です",
      "한국어 문장입니다",
      "这是一个中文句子。",
      "ᠮᠣᠩᠭᠣᠯ",
      "👩‍👩‍👧‍👦🇩🇪🏽👍🏿❤️ 🫠",
      " \t\n\r\n  \u00a0\u2003\u200b\u3000  \v\f x  ",
      "def f(x):\n    return x[0]**2  # 2²\n",
      "<|endoftext|><|im_start|>user\n<|im_end|>",
  };
  return texts;
}

BpeModel trained(int64_t vocab) {
  ThreadPool pool(1);
  WordCounter counter(pool);
  for (int i = 0; i < 3; ++i) {
    for (const std::string& text : scripts()) counter.add(text);
  }
  return train_bpe(counter.finish(), {vocab, 2, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}});
}

void expect_round_trip(const BpeTokenizer& tokenizer, const std::string& text) {
  const std::vector<int64_t> ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  for (const int64_t id : ids) {
    ASSERT_GE(id, 0);
    ASSERT_LT(id, tokenizer.vocab_size());
    EXPECT_FALSE(tokenizer.model().is_special(static_cast<int32_t>(id))) << text;
  }
}

TEST(BpeTokenizer, TextsOfManyScriptsComeBack) {
  for (const int64_t vocab : {259, 400, 800}) {
    const BpeTokenizer tokenizer(trained(vocab), "test");
    EXPECT_EQ(tokenizer.vocab_size(), vocab);
    for (const std::string& text : scripts()) expect_round_trip(tokenizer, text);
    expect_round_trip(tokenizer, "");
  }
}

TEST(BpeTokenizer, RandomBytesComeBack) {
  const BpeTokenizer tokenizer(trained(800), "test");
  test::Draws draws(11);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int64_t i = draws.between(0, 300); i > 0; --i) {
      const std::string& known = scripts()[static_cast<size_t>(draws.below(static_cast<int64_t>(scripts().size())))];
      if (draws.chance(0.3)) {
        text += static_cast<char>(draws.below(256));
      } else {
        text += known.substr(static_cast<size_t>(draws.below(static_cast<int64_t>(known.size()))), 3);
      }
    }
    expect_round_trip(tokenizer, text);
  }
}

TEST(BpeTokenizer, TextIsShorterThanItsBytes) {
  const BpeTokenizer tokenizer(trained(900), "test");
  EXPECT_LT(tokenizer.encode(scripts()[0]).size(), scripts()[0].size() / 3);
}

TEST(BpeTokenizer, SpecialTokens) {
  const BpeTokenizer tokenizer(trained(500), "test");
  const int64_t end = tokenizer.special("<|endoftext|>").value(), turn = tokenizer.special(kTurnEnd).value();
  EXPECT_EQ(end, 497);
  EXPECT_EQ(tokenizer.special(kTurnBegin).value(), 498);
  EXPECT_EQ(turn, 499);
  EXPECT_EQ(tokenizer.special("<|nothing|>"), std::nullopt);
  EXPECT_EQ(tokenizer.special("the"), std::nullopt);
  EXPECT_EQ(tokenizer.bos(), end);
  EXPECT_EQ(tokenizer.eos(), end);
  EXPECT_EQ(tokenizer.ends(), (std::vector<int64_t>{end, turn}));
  EXPECT_EQ(tokenizer.spelling(turn), "<|im_end|>");
  EXPECT_EQ(tokenizer.spelling('A'), "A");
  EXPECT_EQ(tokenizer.spelling(0xff), "\xff");
  EXPECT_EQ(tokenizer.spelling(-1), "");
  EXPECT_EQ(tokenizer.spelling(500), "");
  std::vector<int64_t> ids = tokenizer.encode("hi");
  ids.insert(ids.begin(), {turn, -5, 500, std::numeric_limits<int64_t>::max()});
  ids.push_back(end);
  EXPECT_EQ(tokenizer.decode(ids), "hi");
}

TEST(BpeTokenizer, BeginAndEndOfTextWhenThereAreBoth) {
  BpeModel model = train_bpe({}, {1000, 2, {"<|endoftext|>", "<|begin|>", "<|end|>"}});
  const BpeTokenizer tokenizer(model, "test");
  EXPECT_EQ(tokenizer.bos(), 257);
  EXPECT_EQ(tokenizer.eos(), 258);
  EXPECT_EQ(tokenizer.ends(), (std::vector<int64_t>{258}));
  const BpeModel none = train_bpe({}, {1000, 2, {"<|begin|>"}});
  EXPECT_EQ(test::line_of<UserError>([&] { BpeTokenizer(none, "x.json"); }),
            "x.json: added_tokens: needs <|endoftext|>, or <|begin|> and <|end|>");
}

// Merges one word by their definition.
std::vector<int64_t> merge_slowly(const BpeModel& model, std::string_view word) {
  std::vector<int64_t> ids;
  for (const char byte : word) ids.push_back(static_cast<unsigned char>(byte));
  while (true) {
    size_t best = model.merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (model.merges[rank].left != ids[i] || model.merges[rank].right != ids[i + 1]) continue;
        best = rank;
        place = i;
      }
    }
    if (best == model.merges.size()) return ids;
    ids[place] = model.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BpeTokenizer, MergesAreAppliedInTheirOrderFromTheLeft) {
  test::Draws draws(5);
  for (int round = 0; round < 40; ++round) {
    ThreadPool pool(1);
    WordCounter counter(pool);
    const int64_t letters = draws.between(1, 3);
    const auto word = [&](int64_t size) {
      std::string out;
      while (size-- > 0) out += static_cast<char>('a' + draws.below(letters));
      return out;
    };
    for (int i = 0; i < 10; ++i) counter.add(word(draws.between(1, 40)));
    BpeModel model = train_bpe(counter.finish(), {300, 1, {"<|endoftext|>"}});
    if (round % 2 == 1) draws.shuffle(model.merges);  // files of others may hold any order
    const BpeTokenizer tokenizer(model, "test");
    for (const int64_t size : {1, 2, 3, 7, 20, 47, 48, 49, 50, 100, 200}) {
      const std::string text = word(size);
      EXPECT_EQ(tokenizer.encode(text), merge_slowly(model, text)) << text;
      EXPECT_EQ(tokenizer.encode(text), merge_slowly(model, text)) << "the second time: " << text;
    }
  }
}

TEST(BpeTokenizer, AWordOfAHundredThousandLetters) {
  ThreadPool pool(1);
  WordCounter counter(pool);
  counter.add(std::string(64, 'a'));
  const BpeTokenizer tokenizer(train_bpe(counter.finish(), {1000, 1, {"<|endoftext|>"}}), "test");
  const std::string text(100'000, 'a');
  const std::vector<int64_t> ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_LT(ids.size(), 2000u);
}

TEST(BpeTokenizer, ThreadsShareOne) {
  const BpeTokenizer tokenizer(trained(700), "test");
  const BpeTokenizer other(trained(700), "test");  // answers alone
  std::vector<std::string> texts;
  test::Draws draws(6);
  for (int i = 0; i < 4; ++i) {
    std::string text;
    for (int k = 0; k < 40'000; ++k) text += draws.chance(0.2) ? ' ' : static_cast<char>('a' + draws.below(5));
    texts.push_back(text);
  }
  std::vector<std::vector<int64_t>> found(texts.size() * 2);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&, t] { found[t] = tokenizer.encode(texts[t % texts.size()]); });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < found.size(); ++t) EXPECT_EQ(found[t], other.encode(texts[t % texts.size()]));
}

TEST(WordCache, GivesOnlyWhatWasKept) {
  WordCache cache;
  std::vector<int64_t> out;
  const int64_t ids[] = {5, 6, 7};
  EXPECT_FALSE(cache.find("word", out));
  cache.keep("word", ids, 3);
  EXPECT_FALSE(cache.find("wore", out));
  EXPECT_FALSE(cache.find("wor", out));
  EXPECT_TRUE(cache.find("word", out));
  EXPECT_TRUE(cache.find("word", out));
  EXPECT_EQ(out, (std::vector<int64_t>{5, 6, 7, 5, 6, 7}));
  const std::vector<int64_t> many(100, 1);
  cache.keep(std::string(60, 'x'), ids, 3);  // too long, too many: not kept
  cache.keep("many", many.data(), many.size());
  EXPECT_FALSE(cache.find(std::string(60, 'x'), out));
  EXPECT_FALSE(cache.find("many", out));
  for (int i = 0; i < 100'000; ++i) cache.keep("w" + std::to_string(i), ids, 2);
  out.clear();
  EXPECT_TRUE(cache.find("w99999", out));
  EXPECT_EQ(out, (std::vector<int64_t>{5, 6}));
}

}  // namespace
}  // namespace loom
