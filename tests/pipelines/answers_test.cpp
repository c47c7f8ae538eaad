// Prompts and the texts around them: what is cut, what is shown, and characters that are not complete yet.
#include "pipelines/answers.h"

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "core/base/text.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using Kind = SamplePart::Kind;

RawSample conversation(const std::vector<std::pair<std::string, std::string>>& turns) {
  RawSample out;
  for (const auto& [role, text] : turns) {
    const bool learned = role == "assistant";
    out.parts.push_back(SamplePart::make_turn_begin(role));
    out.parts.push_back(SamplePart::make_text(text, learned));
    out.parts.push_back(SamplePart::make_turn_end(learned));
  }
  return out;
}

TEST(Answers, TheLastAnswerIsCutAndItsTurnLeftOpen) {
  RawSample raw = conversation(
      {{"system", "Be brief."}, {"user", "One?"}, {"assistant", "1"}, {"user", "Two?"}, {"assistant", "2"}});
  EXPECT_EQ(prompt_text(raw), "system: Be brief.\nuser: One?\nassistant: 1\nuser: Two?");
  EXPECT_EQ(cut_answer(raw), "2");
  ASSERT_EQ(raw.parts.size(), 13u);
  EXPECT_EQ(raw.parts.back().kind, Kind::turn_begin);
  EXPECT_EQ(raw.parts.back().text, "assistant");
  for (const SamplePart& part : raw.parts) EXPECT_FALSE(part.supervised) << "a prompt has nothing to learn";
  EXPECT_EQ(prompt_text(raw), "system: Be brief.\nuser: One?\nassistant: 1\nuser: Two?");
}

TEST(Answers, AQuestionWithoutAnswerGetsAnOpenTurn) {
  RawSample raw = conversation({{"user", "One?"}});
  EXPECT_EQ(prompt_text(raw), "One?");
  EXPECT_EQ(cut_answer(raw), "");
  ASSERT_EQ(raw.parts.size(), 4u);
  EXPECT_EQ(raw.parts.back().kind, Kind::turn_begin);
  EXPECT_EQ(prompt_text(raw), "One?");
}

TEST(Answers, SamplesWithoutTurnsEndInTheirLearnedText) {
  RawSample raw;
  raw.parts = {SamplePart::make_media(test::fake_picture(1, 1, 1)), SamplePart::make_text("a photo of ", false),
               SamplePart::make_text("a ", true), SamplePart::make_text("dog", true)};
  EXPECT_EQ(prompt_text(raw), "a photo of ");
  EXPECT_EQ(cut_answer(raw), "a dog");
  EXPECT_EQ(raw.parts.size(), 2u);
}

TEST(Answers, QuestionsAreTurnsOrPlain) {
  AskOptions options;
  const RawSample plain = make_question("q", {test::fake_picture(1, 1, 1)}, "a photo of", options);
  ASSERT_EQ(plain.parts.size(), 2u);
  EXPECT_EQ(plain.parts[0].kind, Kind::media);
  EXPECT_FALSE(plain.parts[1].supervised);
  options.chat = true;
  options.system = "Be brief.";
  const RawSample chat = make_question("q", {test::fake_picture(1, 1, 1)}, "What?", options);
  std::vector<Kind> kinds;
  for (const SamplePart& part : chat.parts) kinds.push_back(part.kind);
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::turn_begin, Kind::text, Kind::turn_end, Kind::turn_begin, Kind::media,
                                      Kind::text, Kind::turn_end, Kind::turn_begin}));
  EXPECT_EQ(chat.key, plain.key) << "the key is the name's";

  // What comes out is what training would have made of the same conversation, up to the answer.
  test::FakeKit kit(256);
  const PreparedSample asked = kit.preparer.prepare(chat);
  RawSample whole = chat;
  whole.parts.push_back(SamplePart::make_text("A dog.", true));
  whole.parts.push_back(SamplePart::make_turn_end(true));
  const PreparedSample trained = kit.preparer.prepare(whole);
  ASSERT_TRUE(asked.verdict.ok) << asked.verdict.reason;
  ASSERT_LT(asked.tokens.size(), trained.tokens.size());
  for (size_t t = 0; t < asked.tokens.size(); ++t) EXPECT_EQ(asked.tokens[t], trained.tokens[t]) << t;
  EXPECT_EQ(trained.supervised[asked.tokens.size()], 1) << "the answer begins where the prompt ends";
  EXPECT_EQ(trained.supervised[asked.tokens.size() - 1], 0);
}

TEST(WholeCharacters, HoldsBackWhatIsNotComplete) {
  const std::string text = "a\u00e9\u20ac\U0001f600z";  // 1, 2, 3, 4 and 1 bytes
  std::vector<size_t> expected;
  for (size_t end = 0; end <= text.size(); ++end) {
    size_t whole = end;
    while (!valid_utf8(text.substr(0, whole))) --whole;
    EXPECT_EQ(whole_characters(text.substr(0, end)), whole) << end;
  }
  // What can never become a character is not waited for.
  EXPECT_EQ(whole_characters("a\x80\x80\x80\x80"), 5u);
  EXPECT_EQ(whole_characters("a\xff"), 2u);
}

TEST(WholeCharacters, StreamedTextIsTheWholeText) {
  const Philox random({.seed = 4});
  uint64_t draw = 0;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      const char* pieces[] = {"a", "\u00e9", "\u20ac", "\U0001f600", "\xff", "\xe2\x82", "\x80"};
      text += pieces[random.below(7, draw++)];
    }
    std::string shown;
    size_t done = 0;
    for (size_t end = 1; end <= text.size(); ++end) {
      const size_t whole = whole_characters(std::string_view(text).substr(0, end));
      if (whole <= done) continue;
      shown += clean_text(std::string_view(text).substr(done, whole - done));
      EXPECT_TRUE(valid_utf8(shown));
      done = whole;
    }
    shown += clean_text(std::string_view(text).substr(done));
    EXPECT_EQ(shown, clean_text(text));
    EXPECT_TRUE(valid_utf8(shown));
  }
}

}  // namespace
}  // namespace loom
