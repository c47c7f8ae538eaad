// The words of GPT-2's pattern, and no byte lost whatever the text is.
#include "core/data/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/draws.h"

namespace loom {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  Pretokens words(text);
  for (std::string_view word; words.next(word);) out.emplace_back(word);
  return out;
}

using Words = std::vector<std::string>;

TEST(Pretokens, WordsOfEnglishCodeAndBlanks) {
  EXPECT_EQ(words_of("It's 2 cats, we'll see"), (Words{"It", "'s", " 2", " cats", ",", " we", "'ll", " see"}));
  EXPECT_EQ(words_of("IT'S"), (Words{"IT", "'", "S"}));
  EXPECT_EQ(words_of("x+=12;\n\n    return"), (Words{"x", "+=", "12", ";", "\n\n   ", " return"}));
  EXPECT_EQ(words_of("end   "), (Words{"end", "   "}));
  EXPECT_EQ(words_of("a \t\n b"), (Words{"a", " \t\n", " b"}));
  EXPECT_EQ(words_of("<|im_end|>"), (Words{"<|", "im", "_", "end", "|>"}));
  EXPECT_EQ(words_of(""), Words{});
}

TEST(Pretokens, LettersAndDigitsOfOtherScripts) {
  EXPECT_EQ(words_of("Ж東京 ٣٤ Ⅷ½"), (Words{"Ж東京", " ٣٤", " Ⅷ½"}));
  // A vowel sign is a mark, no letter.
  EXPECT_EQ(words_of("कि"), (Words{"क", "ि"}));
  EXPECT_EQ(words_of("👩‍👩 ok"), (Words{"👩‍👩", " ok"}));
}

TEST(Pretokens, WhatCountsAsALetterDoesNotDependOnTheLibrary) {
  EXPECT_EQ(words_of("a\u1c89a"), (Words{"a\u1c89a"}));          // a letter since Unicode 16
  EXPECT_EQ(words_of("a\U00031350a"), (Words{"a\U00031350a"}));  // since Unicode 15
  EXPECT_EQ(words_of("1\U0001e4f01"), (Words{"1\U0001e4f01"}));  // a digit since Unicode 15
  EXPECT_EQ(words_of("!\u180e!"), (Words{"!\u180e!"}));          // no longer a blank
  EXPECT_EQ(words_of("a\u0085\u3000b"), (Words{"a", "\u0085", "\u3000", "b"}));
}

TEST(Pretokens, BytesThatAreNoUtf8AreWordsOfTheirOwn) {
  EXPECT_EQ(words_of("ab\xff\xfe cd"), (Words{"ab", "\xff", "\xfe", " cd"}));
  EXPECT_EQ(words_of("\xe2\x82"), (Words{"\xe2", "\x82"}));                          // cut off
  EXPECT_EQ(words_of("\xed\xa0\x80x"), (Words{"\xed", "\xa0", "\x80", "x"}));        // a surrogate
  EXPECT_EQ(words_of("\xc0\x80"), (Words{"\xc0", "\x80"}));                          // too long for its value
  EXPECT_EQ(words_of("\xf4\x90\x80\x80"), (Words{"\xf4", "\x90", "\x80", "\x80"}));  // above the last character
}

TEST(Pretokens, AnyBytesComeBackInOrder) {
  test::Draws draws(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const int64_t size = draws.between(0, 200);
    for (int64_t i = 0; i < size; ++i) text += static_cast<char>(draws.between(0, round % 2 == 0 ? 255 : 0xc8));
    std::string joined;
    for (const std::string& word : words_of(text)) {
      EXPECT_FALSE(word.empty());
      joined += word;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(Pretokens, LongRunsTakeLinearTime) {
  const std::string letters(2'000'000, 'x'), blanks(2'000'000, ' ');
  EXPECT_EQ(words_of(letters).size(), 1u);
  EXPECT_EQ(words_of(blanks + "x").size(), 2u);
  EXPECT_EQ(words_of(blanks).size(), 1u);
}

}  // namespace
}  // namespace loom
