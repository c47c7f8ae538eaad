// The preview's pieces cover a sample exactly, and its page holds what it should and nothing from elsewhere.
#include "pipelines/data_preview.h"

#include <gtest/gtest.h>

#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::FakeKit;
using Kind = TokenPiece::Kind;

// Shows its rows as a picture of one row.
class ShowingEncoder : public test::FakeEncoder {
 public:
  Tensor show(const Tensor& rows, const ItemMeta& meta) const override {
    return rows.select(1, 0).to(at::kByte).reshape({1, meta.grid[0], meta.grid[1], 1});
  }
};

RawSample chat_sample() {
  RawSample raw;
  raw.name = "train.0#0";
  raw.parts = {SamplePart::make_turn_begin("user"),
               SamplePart::make_media(test::fake_picture(2, 3, 7)),
               SamplePart::make_text("caf\u00e9 <b>\n", false),
               SamplePart::make_turn_end(false),
               SamplePart::make_turn_begin("assistant"),
               SamplePart::make_text("\u20ac ok \xff", true),
               SamplePart::make_turn_end(true)};
  return raw;
}

TEST(DataPreview, PiecesCoverTheSample) {
  FakeKit kit(256);
  const PreparedSample sample = kit.preparer.prepare(chat_sample());
  ASSERT_TRUE(sample.verdict.ok) << sample.verdict.reason;
  const std::vector<TokenPiece> pieces = token_pieces(sample, *kit.tokenizer);
  int64_t at = 0, media = 0;
  std::string learned, all;
  for (const TokenPiece& piece : pieces) {
    for (int64_t t = 0; t < piece.tokens; ++t, ++at)
      EXPECT_EQ(sample.supervised[static_cast<size_t>(at)] != 0, piece.supervised) << at;
    if (piece.kind == Kind::media) {
      EXPECT_EQ(piece.tokens, 6);
      EXPECT_EQ(piece.text, "image");
      ++media;
    }
    if (piece.supervised) learned += piece.text + "|";
    all += piece.text + "|";
  }
  EXPECT_EQ(at, static_cast<int64_t>(sample.tokens.size()));
  EXPECT_EQ(media, 1);
  EXPECT_EQ(learned, "\u20ac| |o|k| |\\xFF|<|im_end|>|");
  EXPECT_NE(all.find("c|a|f|\u00e9| |<|b|>|\n|"), std::string::npos) << all;
}

TEST(DataPreview, ThePageShowsPicturesAndWhyASampleIsNotUsed) {
  ShowingEncoder encoder;
  const auto tokenizer = make_tokenizer(ConfigValue::string("bytes"));
  const Preparer preparer(PreparerOptions{{{"image", {&encoder, 1}}}, tokenizer.get(), 64, OverLong::error, 5});
  test::FakeSource source("train.0", 6);
  source.broken = {2};
  PreviewPage page;
  page.title = "a <recipe>";
  page.split = "train";
  page.total = 6;
  for (int64_t i = 0; i < 6; ++i) page.samples.push_back(preview_sample(preparer, source, i));
  EXPECT_NE(page.samples[2].skipped.find("cannot decode it"), std::string::npos);
  ASSERT_EQ(page.samples[3].pictures.size(), 1u);
  EXPECT_EQ(page.samples[3].pictures[0].original_size, "4x1");
  EXPECT_EQ(page.samples[3].pictures[0].seen_size, "4x1");
  EXPECT_EQ(page.samples[3].pictures[0].slots, 4);
  EXPECT_FALSE(page.samples[3].pictures[0].seen.empty());
  const std::string html = preview_html(page);
  EXPECT_NE(html.find("a &lt;recipe&gt;"), std::string::npos);
  EXPECT_NE(html.find("cannot decode it"), std::string::npos);
  EXPECT_NE(html.find("image · 4 slots"), std::string::npos);
  EXPECT_NE(html.find("data:image/png;base64,"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos) << "nothing comes from elsewhere";
  EXPECT_EQ(html.find("<script"), std::string::npos);
}

TEST(DataPreview, AnEncoderThatShowsNothingIsNoProblem) {
  FakeKit kit;
  const test::FakeSource source("train.0", 2);
  const PreviewSample sample = preview_sample(kit.preparer, source, 1);
  ASSERT_EQ(sample.pictures.size(), 1u);
  EXPECT_TRUE(sample.pictures[0].seen.empty());
  EXPECT_FALSE(sample.pictures[0].original.empty());
}

}  // namespace
}  // namespace loom
