// One sample at a time: layout, verdict, skips, and what must stop the run instead.
#include "core/data/preparer.h"

#include <gtest/gtest.h>

#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::fake_picture;
using test::FakeKit;
using test::FakeSource;
using test::line_of;

RawSample sample_of(std::vector<SamplePart> parts) { return {77, "train.0#5", std::move(parts)}; }

TEST(Preparer, LayoutOfTextAndMedia) {
  FakeKit kit(64, OverLong::error, 2);
  const PreparedSample out =
      kit.preparer.prepare(sample_of({SamplePart::make_text("ab", false), SamplePart::make_media(fake_picture(2, 3, 9)),
                                      SamplePart::make_text("cd", true), SamplePart::make_media(fake_picture(1, 2, 4)),
                                      SamplePart::make_text("e", true)}),
                           12, 0);
  const int64_t bos = kit.tokenizer->bos(), eos = kit.tokenizer->eos();
  EXPECT_EQ(out.tokens, (std::vector<int64_t>{bos, 'a', 'b', 0, 0, 0, 'c', 'd', 0, 'e', eos}));
  EXPECT_EQ(out.supervised, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1}));
  EXPECT_TRUE(out.verdict.ok);
  EXPECT_EQ(out.verdict.position, 12u);
  EXPECT_EQ(out.verdict.sample, 77u);
  EXPECT_EQ(out.verdict.tokens, 11);
  EXPECT_EQ(out.verdict.supervised, 4);
  ASSERT_EQ(out.verdict.items.size(), 2u);
  EXPECT_EQ(out.verdict.items[0].begin, 3);
  EXPECT_EQ(out.verdict.items[0].slots, 3);
  EXPECT_EQ(out.verdict.items[0].meta.outputs, 6);
  EXPECT_EQ(out.verdict.items[1].begin, 8);
  EXPECT_EQ(out.verdict.items[1].slots, 1);
  ASSERT_EQ(out.media.size(), 2u);
  EXPECT_TRUE(out.media[0].sizes() == at::IntArrayRef({6, 2}));
  EXPECT_EQ(out.media[0][0][0].item<float>(), 9);
  EXPECT_EQ(out.media[1][0][0].item<float>(), 4);
}

TEST(Preparer, EndTokenOnlyAfterSupervisedText) {
  FakeKit kit;
  const PreparedSample prompt = kit.preparer.prepare(
      sample_of({SamplePart::make_media(fake_picture(1, 2, 0)), SamplePart::make_text("q", false)}));
  EXPECT_EQ(prompt.tokens, (std::vector<int64_t>{kit.tokenizer->bos(), 0, 0, 'q'}));
  EXPECT_EQ(prompt.verdict.supervised, 0);
  const PreparedSample answer =
      kit.preparer.prepare(sample_of({SamplePart::make_text("q", false), SamplePart::make_text("", true)}));
  EXPECT_EQ(answer.tokens.back(), kit.tokenizer->eos());
  EXPECT_EQ(answer.verdict.supervised, 1);
}

TEST(Preparer, OverLongSamplesFollowThePolicy) {
  const RawSample exact = sample_of({SamplePart::make_text(std::string(8, 'x'), true)});  // bos + 8 + eos = 10
  const RawSample longer = sample_of({SamplePart::make_text(std::string(9, 'x'), true)});
  FakeKit strict(10), lenient(10, OverLong::drop);
  EXPECT_TRUE(strict.preparer.prepare(exact).verdict.ok);
  const std::string text = line_of<UserError>([&] { strict.preparer.prepare(longer); });
  EXPECT_HAS(text, "train.0#5: 11 tokens exceed data.budget = 10");
  const PreparedSample dropped = lenient.preparer.prepare(longer);
  EXPECT_FALSE(dropped.verdict.ok);
  EXPECT_TRUE(dropped.left_out);
  EXPECT_HAS(dropped.verdict.reason, "11 tokens exceed data.budget = 10");
  EXPECT_TRUE(dropped.tokens.empty());
  // A picture whose slots alone exceed the budget.
  const PreparedSample huge = lenient.preparer.prepare(sample_of({SamplePart::make_media(fake_picture(30, 30, 1))}));
  EXPECT_HAS(huge.verdict.reason, "901 tokens exceed");
}

TEST(Preparer, BadContentsAreSkipsOfOneLine) {
  FakeKit kit(64, OverLong::error, 2);
  const auto reason_of = [&](const RawSample& raw) {
    const PreparedSample out = kit.preparer.prepare(raw);
    EXPECT_FALSE(out.verdict.ok);
    EXPECT_FALSE(out.left_out);
    EXPECT_EQ(out.verdict.name, "train.0#5");
    EXPECT_TRUE(out.media.empty() && out.tokens.empty() && out.verdict.items.empty());
    EXPECT_EQ(out.verdict.tokens, 0);
    EXPECT_EQ(out.verdict.reason.find('\n'), std::string::npos);
    return out.verdict.reason;
  };
  EXPECT_HAS(reason_of(sample_of({})), "empty");
  EXPECT_HAS(reason_of(sample_of({SamplePart::make_media(fake_picture(41, 1, 0))})), "a picture of 41 rows is refused");
  EXPECT_HAS(reason_of(sample_of({SamplePart::make_media(fake_picture(1, 3, 0))})),
             "3 encoder outputs, which the connector's merge factor 2");
  EXPECT_HAS(reason_of(sample_of({SamplePart::make_media(fake_picture(0, 3, 0))})), "gives no rows");
  kit.encoder.fail = [](const Media&) { throw std::runtime_error("bad pixels\nmore"); };
  EXPECT_EQ(reason_of(sample_of({SamplePart::make_media(fake_picture(1, 2, 0))})), "bad pixels");
  kit.encoder.fail = [](const Media& media) { media.data.reshape({7, 7}); };  // an error of LibTorch, with a backtrace
  EXPECT_HAS(reason_of(sample_of({SamplePart::make_media(fake_picture(1, 2, 0))})), "shape '[7, 7]' is invalid");

  FakeSource source("train.0", 10);
  source.broken = {4};
  const PreparedSample unread = kit.preparer.prepare(source, 4, 9, 0);
  EXPECT_FALSE(unread.verdict.ok);
  EXPECT_EQ(unread.verdict.reason, "cannot decode it");
  EXPECT_EQ(unread.verdict.name, "train.0#4");
  EXPECT_EQ(unread.verdict.sample, source.sample_key(4));
  EXPECT_EQ(unread.verdict.position, 9u);
}

TEST(Preparer, WhatIsNotTheSamplesFaultStopsTheRun) {
  FakeKit kit;
  const RawSample raw = sample_of({SamplePart::make_media(fake_picture(1, 2, 0))});
  kit.encoder.fail = [](const Media&) { throw PluginError("broken"); };
  EXPECT_THROW(kit.preparer.prepare(raw), PluginError);
  kit.encoder.fail = [](const Media&) { throw InternalError("ours"); };
  EXPECT_THROW(kit.preparer.prepare(raw), InternalError);
  kit.encoder.fail = [](const Media&) { throw std::bad_alloc(); };
  EXPECT_THROW(kit.preparer.prepare(raw), EnvironmentError);
  const std::string text = line_of<UserError>(
      [&] { kit.preparer.prepare(sample_of({SamplePart::make_media(fake_picture(1, 2, 0, "imgae"))})); });
  EXPECT_HAS(
      text,
      "train.0#5: has media of modality 'imgae', but model.encoders has none of that name; did you mean 'image'?");

  class WrongShape : public test::FakeEncoder {
   public:
    Tensor prepare(const Media&, const Philox&) const override { return at::zeros({3, 2}, at::kFloat); }
  } wrong;
  const Preparer preparer(PreparerOptions{{{"image", {&wrong, 1}}}, kit.tokenizer.get(), 64, OverLong::error, 5});
  EXPECT_HAS(line_of<PluginError>([&] { preparer.prepare(raw); }),
             "encoders.image: prepare() gave Float [3, 2] for train.0#5; expected Float [2, 2]");
}

TEST(Preparer, RandomnessIsAFunctionOfSampleItemAndEpoch) {
  FakeKit kit;
  kit.encoder.noise = true;
  const std::vector<SamplePart> two = {SamplePart::make_media(fake_picture(1, 1, 0)),
                                       SamplePart::make_media(fake_picture(1, 1, 0))};
  const auto draw = [&](uint64_t key, uint64_t position, uint64_t epoch, size_t item) {
    return kit.preparer.prepare(RawSample{key, "x", two}, position, epoch).media[item][0][1].item<float>();
  };
  const float value = draw(1, 0, 0, 0);
  EXPECT_EQ(value, draw(1, 500, 0, 0));  // not of the position
  EXPECT_NE(value, draw(1, 0, 1, 0));
  EXPECT_NE(value, draw(2, 0, 0, 0));
  EXPECT_NE(value, draw(1, 0, 0, 1));
}

TEST(Preparer, ParsesThePolicy) {
  EXPECT_EQ(parse_over_long(ConfigValue::string("error")), OverLong::error);
  EXPECT_EQ(parse_over_long(ConfigValue::string("drop")), OverLong::drop);
  EXPECT_HAS(line_of<UserError>([] { parse_over_long(ConfigValue::string("dorp")); }), "did you mean 'drop'?");
}

TEST(Preparer, DivisibleItemsNameTheirCuts) {
  FakeKit kit(64, OverLong::error, 2);
  kit.encoder.windows = true;
  const RawSample raw = sample_of({SamplePart::make_media(fake_picture(2, 4, 9))});
  EXPECT_TRUE(kit.preparer.prepare(raw).verdict.items[0].cuts.empty());
  PreparerOptions options = kit.preparer.options();
  options.modalities.at("image").divisible = true;
  EXPECT_EQ(Preparer(options).prepare(raw).verdict.items[0].cuts, (std::vector<int64_t>{2, 4, 6}));  // merge 2
  options.modalities.at("image").merge = 1;
  EXPECT_EQ(Preparer(options).prepare(raw).verdict.items[0].cuts, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  options.modalities.at("image").outputs = "rows";
  EXPECT_EQ(Preparer(options).prepare(raw).verdict.items[0].cuts.size(), 7u);

  options.modalities.at("image").outputs = "pooled";
  EXPECT_EQ(line_of<PluginError>([&] { Preparer(options).prepare(raw); }),
            "encoders.image: layout() of an item of train.0#5: there is no partition 'pooled', of which its features "
            "are rows");
}

TEST(Preparer, AnItemThatMustStayWholeHasNoCuts) {
  class Whole : public test::FakeEncoder {
   public:
    ItemLayout layout(const ItemMeta& meta) const override {
      ItemLayout out = whole_item(meta.tokens);
      out.whole = true;
      return out;
    }
  } whole;
  FakeKit kit;
  PreparerOptions options{{{"image", {&whole, 1}}}, kit.tokenizer.get(), 64, OverLong::error, 5};
  options.modalities.at("image").divisible = true;
  EXPECT_TRUE(Preparer(options)
                  .prepare(sample_of({SamplePart::make_media(fake_picture(2, 4, 9))}))
                  .verdict.items[0]
                  .cuts.empty());
}

TEST(Preparer, WhatWasReadIsHandedBack) {
  FakeKit kit;
  FakeSource source("train.0", 10);
  source.broken = {4};
  RawSample raw;
  const PreparedSample out = kit.preparer.prepare(source, 3, 12, 0, &raw);
  EXPECT_TRUE(out.verdict.ok);
  EXPECT_EQ(raw.key, out.verdict.sample);
  EXPECT_EQ(raw.name, out.verdict.name);
  ASSERT_EQ(raw.parts.size(), 2u);
  EXPECT_EQ(raw.parts[0].media.info.width, 4);
  EXPECT_FALSE(kit.preparer.prepare(source, 4, 13, 0, &raw).verdict.ok);
}

}  // namespace
}  // namespace loom
