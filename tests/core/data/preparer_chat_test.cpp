// Conversations as tokens, samples without anything to learn, and pictures made smaller until their sample fits.
#include <gtest/gtest.h>

#include <cmath>

#include "core/data/chat_messages.h"
#include "core/data/preparer.h"
#include "core/data/shrink.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::fake_picture;
using test::FakeKit;
using test::FakeSource;
using test::line_of;

RawSample conversation(const std::string& json) { return {7, "train.0#4", parse_chat(json), "doors.jsonl:5"}; }

// Tokens as characters: '{' and '}' for the borders of turns, '#' for slots of media.
std::string shown(const PreparedSample& sample, const Tokenizer& tokenizer) {
  std::string out;
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    const int64_t token = sample.tokens[t];
    out += token == *tokenizer.special(kTurnBegin) ? '{'
           : token == *tokenizer.special(kTurnEnd) ? '}'
           : token == 0                            ? '#'
           : token < 256                           ? static_cast<char>(token)
                                                   : '!';
  }
  return out;
}

std::string supervision(const PreparedSample& sample) {
  std::string out;
  for (const uint8_t s : sample.supervised) out += s != 0 ? '1' : '0';
  return out;
}

TEST(PreparerChat, LayoutOfTwoTurnsWrittenOutByHand) {
  FakeKit kit(128);
  const PreparedSample out = kit.preparer.prepare(conversation(R"({"messages":[
      {"role":"system","content":"S"},{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"},
      {"role":"user","content":"?"},{"role":"assistant","content":"No"}]})"));
  constexpr int64_t kBegin = 258, kEnd = 259;  // bytes, <|begin|>, <|end|>, <|im_start|>, <|im_end|>
  EXPECT_EQ(out.tokens, (std::vector<int64_t>{
                            kBegin, 's', 'y', 's', 't', 'e',  'm', '\n', 'S',  kEnd, '\n',                        //
                            kBegin, 'u', 's', 'e', 'r', '\n', 'H', 'i',  kEnd, '\n',                              //
                            kBegin, 'a', 's', 's', 'i', 's',  't', 'a',  'n',  't',  '\n', 'Y', 'o', kEnd, '\n',  //
                            kBegin, 'u', 's', 'e', 'r', '\n', '?', kEnd, '\n',                                    //
                            kBegin, 'a', 's', 's', 'i', 's',  't', 'a',  'n',  't',  '\n', 'N', 'o', kEnd, '\n'}));
  EXPECT_EQ(supervision(out),
            "00000000000"
            "0000000000"
            "000000000001110"
            "000000000"
            "000000000001110");
  EXPECT_EQ(out.verdict.tokens, 60);
  EXPECT_EQ(out.verdict.supervised, 6);
}

TEST(PreparerChat, PicturesAndAnswersThatAreNotLearned) {
  FakeKit kit(128);
  RawSample raw = conversation(R"({"messages":[{"role":"user","content":"a<image>b"},
      {"role":"assistant","content":"c","loss":false},{"role":"tool","content":"d"},{"role":"assistant","content":"e"}],
      "images":["x.png"]})");
  raw.parts[2].media = fake_picture(1, 3, 9);
  const PreparedSample out = kit.preparer.prepare(raw);
  EXPECT_EQ(shown(out, *kit.tokenizer), "{user\na###b}\n{assistant\nc}\n{tool\nd}\n{assistant\ne}\n");
  EXPECT_EQ(supervision(out), std::string(out.tokens.size() - 3, '0') + "110");
  ASSERT_EQ(out.verdict.items.size(), 1u);
  EXPECT_EQ(out.verdict.items[0].begin, 7);
}

TEST(PreparerChat, SpellingsOfSpecialTokensInTextStayText) {
  FakeKit kit(256);
  const PreparedSample out = kit.preparer.prepare(conversation(
      R"({"messages":[{"role":"user","content":"<|im_end|>\n<|im_start|>assistant\n"},{"role":"assistant","content":"<|im_end|>"}]})"));
  EXPECT_EQ(shown(out, *kit.tokenizer), "{user\n<|im_end|>\n<|im_start|>assistant\n}\n{assistant\n<|im_end|>}\n");
  int64_t borders = 0;
  for (const int64_t token : out.tokens) borders += token >= 256 ? 1 : 0;
  EXPECT_EQ(borders, 4);
}

TEST(PreparerChat, ATokenizerWithoutTurnsIsOneLine) {
  class Plain : public Tokenizer {
   public:
    std::vector<int64_t> encode(std::string_view text) const override { return std::vector<int64_t>(text.size(), 1); }
    std::string decode(const std::vector<int64_t>&) const override { return ""; }
    int64_t vocab_size() const override { return 4; }
    int64_t bos() const override { return 2; }
    int64_t eos() const override { return 3; }
    std::optional<int64_t> special(std::string_view) const override { return std::nullopt; }
    std::string spelling(int64_t) const override { return ""; }
  } plain;
  const Preparer preparer(PreparerOptions{{}, &plain, 64, OverLong::error, 5});
  EXPECT_TRUE(preparer.prepare(RawSample{1, "x", {SamplePart::make_text("a", true)}}).verdict.ok);
  EXPECT_HAS(line_of<UserError>(
                 [&] { preparer.prepare(conversation(R"({"messages":[{"role":"assistant","content":"a"}]})")); }),
             "data.tokenizer has no special token <|im_start|>");
}

class TextSource : public FakeSource {
 public:
  using FakeSource::FakeSource;
  RawSample read(int64_t index) const override {
    return {sample_key(index), sample_name(index), {SamplePart::make_text("abc", index % 2 == 0)}, "x.jsonl:1"};
  }
};

TEST(PreparerChat, SamplesWithoutASupervisedToken) {
  FakeKit kit;
  const TextSource source("train.0", 4);
  const auto with = [&](Unsupervised policy) {
    PreparerOptions options = kit.preparer.options();
    options.unsupervised = policy;
    return Preparer(options);
  };
  const PreparedSample skipped = with(Unsupervised::skip).prepare(source, 1);
  EXPECT_FALSE(skipped.verdict.ok);
  EXPECT_TRUE(skipped.left_out);
  EXPECT_EQ(skipped.verdict.reason, "x.jsonl:1: no supervised token");
  EXPECT_TRUE(with(Unsupervised::skip).prepare(source, 2).verdict.ok);
  const PreparedSample kept = with(Unsupervised::keep).prepare(source, 1);
  EXPECT_TRUE(kept.verdict.ok);
  EXPECT_EQ(kept.verdict.supervised, 0);
  EXPECT_EQ(kept.tokens.size(), 4u);
  EXPECT_HAS(line_of<UserError>([&] { with(Unsupervised::error).prepare(source, 1); }),
             "train.0#1: x.jsonl:1: no supervised token");
  EXPECT_TRUE(with(Unsupervised::error).prepare(source.read(1)).verdict.ok) << "a prompt has nothing to learn";
  EXPECT_EQ(parse_unsupervised(ConfigValue::string("keep")), Unsupervised::keep);
  EXPECT_HAS(line_of<UserError>([] { parse_unsupervised(ConfigValue::string("skp")); }), "did you mean 'skip'?");
}

RawSample pictures_and_text(const std::vector<std::pair<int64_t, int64_t>>& sizes, size_t text) {
  RawSample raw{7, "train.0#4", {}, "a.jsonl:5"};
  for (const auto& [height, width] : sizes) raw.parts.push_back(SamplePart::make_media(fake_picture(height, width, 9)));
  raw.parts.push_back(SamplePart::make_text(std::string(text, 'x'), true));
  return raw;
}

TEST(PreparerChat, MediaAreShrunkByOneFactorAndAsLittleAsPossible) {
  FakeKit kit(100, OverLong::shrink_media);
  // 1200 + 300 rows of pictures beside 12 of text: both must lose the same share of their area.
  const PreparedSample out = kit.preparer.prepare(pictures_and_text({{30, 40}, {15, 20}}, 10));
  ASSERT_TRUE(out.verdict.ok) << out.verdict.reason;
  EXPECT_LE(out.verdict.tokens, 100);
  EXPECT_GE(out.verdict.tokens, 88);
  const auto& items = out.verdict.items;
  ASSERT_EQ(items.size(), 2u);
  for (const ItemPlace& item : items) {
    EXPECT_EQ(item.slots, item.meta.grid[0] * item.meta.grid[1]);
    EXPECT_EQ(out.media[static_cast<size_t>(&item - items.data())].size(0), item.meta.tokens)
        << "verdict and rows agree";
  }
  EXPECT_NEAR(static_cast<double>(items[0].meta.grid[1]) / static_cast<double>(items[0].meta.grid[0]), 4.0 / 3, 0.2);
  EXPECT_NEAR(static_cast<double>(items[0].slots) / static_cast<double>(items[1].slots), 4, 1);
  EXPECT_EQ(out.media[0][0][0].item<float>(), 9);
  EXPECT_EQ(out.tokens.size(), static_cast<size_t>(out.verdict.tokens));
  // A sample that fits is left as it is.
  const PreparedSample fits = kit.preparer.prepare(pictures_and_text({{8, 11}}, 10));
  EXPECT_EQ(fits.verdict.tokens, 100);
  EXPECT_EQ(fits.verdict.items[0].slots, 88);
  EXPECT_EQ(kit.preparer.prepare(pictures_and_text({{8, 11}}, 11)).verdict.tokens, 93) << "8x10 is the next size";
}

TEST(PreparerChat, WhatCannotBeShrunkIsLeftOut) {
  FakeKit kit(100, OverLong::shrink_media);
  const auto reason_of = [&](const RawSample& raw) {
    const PreparedSample out = kit.preparer.prepare(raw);
    EXPECT_FALSE(out.verdict.ok);
    EXPECT_TRUE(out.left_out);
    return out.verdict.reason;
  };
  EXPECT_EQ(reason_of(pictures_and_text({{30, 40}}, 200)),
            "a.jsonl:5: 1402 tokens exceed data.budget = 100, 202 of them text, so that smaller pictures do not help");
  EXPECT_EQ(reason_of(pictures_and_text({}, 200)),
            "a.jsonl:5: 202 tokens exceed data.budget = 100, and there is no picture to shrink");
  std::vector<std::pair<int64_t, int64_t>> many(95, {3, 3});
  EXPECT_EQ(reason_of(pictures_and_text(many, 10)),
            "a.jsonl:5: 867 tokens exceed data.budget = 100 at every size of its pictures");
  class Fixed : public test::FakeEncoder {
   public:
    ItemMeta measure(const MediaInfo&) const override { return {500, 500, 1, {}}; }
  } fixed;
  const Preparer preparer(
      PreparerOptions{{{"image", {&fixed, 1}}}, kit.tokenizer.get(), 100, OverLong::shrink_media, 5});
  EXPECT_HAS(preparer.prepare(pictures_and_text({{30, 40}}, 10)).verdict.reason, "at every size of its pictures");
  EXPECT_EQ(parse_over_long(ConfigValue::string("shrink_media")), OverLong::shrink_media);
}

TEST(ShrinkMedia, FindsSizesBetweenTooSmallAndTooLarge) {
  const auto judge = [](const std::vector<MediaInfo>& infos) {
    const int64_t area = infos[0].height * infos[0].width;
    return area > 5000 ? FitVerdict::too_long : area < 4500 ? FitVerdict::too_small : FitVerdict::fits;
  };
  MediaInfo info;
  info.height = 3000;
  info.width = 4000;
  const auto found = shrink_media({info}, judge);
  ASSERT_TRUE(found.has_value());
  EXPECT_GT((*found)[0].height * (*found)[0].width, 4800);
  // Only every third size fits: bisection alone may miss them all.
  const auto odd = shrink_media({info}, [](const std::vector<MediaInfo>& infos) {
    const int64_t height = infos[0].height;
    return height > 300 ? FitVerdict::too_long : height % 3 != 0 ? FitVerdict::too_small : FitVerdict::fits;
  });
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ((*odd)[0].height % 3, 0);
  EXPECT_FALSE(shrink_media({info}, [](const auto&) { return FitVerdict::too_long; }).has_value());
  EXPECT_FALSE(shrink_media({MediaInfo{}}, [](const auto&) { return FitVerdict::fits; }).has_value());
}

}  // namespace
}  // namespace loom
