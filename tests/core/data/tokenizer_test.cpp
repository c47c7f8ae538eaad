// Any string survives, and no string turns into a special token.
#include "core/data/tokenizer.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

TEST(ByteTokenizer, RoundTripOfEveryByteAndOfSpecialSpellings) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(ConfigValue::string("bytes"));
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {all, std::string("<bos> <eos> <pad> <|image_pad|> {name}"), std::string("Zürich 東京"), std::string()}) {
    const std::vector<int64_t> tokens = tokenizer->encode(text);
    EXPECT_EQ(tokens.size(), text.size());
    for (const int64_t token : tokens) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, tokenizer->bos());
    }
    EXPECT_EQ(tokenizer->decode(tokens), text);
  }
}

TEST(ByteTokenizer, SpecialTokensAreDistinctIdsThatDecodeToNothing) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(ConfigValue::string("bytes"));
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_NE(tokenizer->bos(), tokenizer->eos());
  EXPECT_LT(tokenizer->bos(), tokenizer->vocab_size());
  EXPECT_LT(tokenizer->eos(), tokenizer->vocab_size());
  EXPECT_EQ(tokenizer->decode({tokenizer->bos(), 'h', 'i', tokenizer->eos(), 259, 400, -1}), "hi");
}

TEST(ByteTokenizer, UnknownNameIsOneLine) {
  ConfigValue name = ConfigValue::string("byte");
  name.mark = {"recipe.yaml", 8, 14};
  name.path = "data.tokenizer";
  EXPECT_HAS(test::line_of<UserError>([&] { make_tokenizer(name); }),
             "recipe.yaml:8:14: data.tokenizer: no tokenizer 'byte'; did you mean 'bytes'?");
}

}  // namespace
}  // namespace loom
