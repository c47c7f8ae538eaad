// Batches against brute force: which row is a loss row, what its target is, where each media row goes, who may see
// whom.
#include "core/data/batch_builder.h"

#include <gtest/gtest.h>

#include "core/comm/communicator.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::fake_picture;
using test::FakeKit;

std::vector<int64_t> values(const Tensor& tensor) {
  EXPECT_EQ(tensor.scalar_type(), at::kLong);
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

// Random conversations: text parts (supervised or not) and pictures of even size in any order.
std::vector<PreparedSample> random_samples(const FakeKit& kit, uint64_t seed, int count) {
  const Philox random(RandomKey{.seed = seed});
  uint64_t at = 0;
  std::vector<PreparedSample> out;
  for (int i = 0; i < count; ++i) {
    RawSample raw{static_cast<uint64_t>(100 + i), concat("s", i), {}};
    const uint64_t parts = 1 + random.below(5, at++);
    for (uint64_t p = 0; p < parts; ++p) {
      const uint64_t kind = random.below(3, at++);
      if (kind == 0) {
        const int64_t height = 1 + static_cast<int64_t>(random.below(3, at++));
        raw.parts.push_back(
            SamplePart::make_media(fake_picture(height, 2, static_cast<int64_t>(random.below(250, at++)))));
      } else {
        std::string text;
        for (uint64_t c = random.below(5, at++); c > 0; --c) text += static_cast<char>('a' + random.below(26, at++));
        raw.parts.push_back(SamplePart::make_text(text, kind == 1));
      }
    }
    out.push_back(kit.preparer.prepare(raw));
    EXPECT_TRUE(out.back().verdict.ok) << out.back().verdict.reason;
  }
  return out;
}

std::vector<const PreparedSample*> pointers(const std::vector<PreparedSample>& samples) {
  std::vector<const PreparedSample*> out;
  for (const PreparedSample& sample : samples) out.push_back(&sample);
  return out;
}

TEST(BatchBuilder, LossRowsTargetsAndSlotsByBruteForce) {
  FakeKit kit(256, OverLong::error, 2);
  const BatchModalities modalities = {{"image", {&kit.encoder, at::kDouble}}};
  int64_t loss_rows_seen = 0, slots_seen = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const std::vector<PreparedSample> samples = random_samples(kit, seed, 6);
    const ModelBatch batch = build_batch(pointers(samples), modalities);

    // Every row with its sample, its place in the sample and whether it is a slot.
    struct Row {
      size_t sample;
      int64_t place, token;
      bool supervised, slot;
    };
    std::vector<Row> rows;
    std::vector<int64_t> slots;
    std::vector<double> media;
    for (size_t s = 0; s < samples.size(); ++s) {
      for (size_t t = 0; t < samples[s].tokens.size(); ++t) {
        bool slot = false;
        for (const ItemPlace& item : samples[s].verdict.items) {
          slot = slot || (static_cast<int64_t>(t) >= item.begin && static_cast<int64_t>(t) < item.begin + item.slots);
        }
        if (slot) slots.push_back(static_cast<int64_t>(rows.size()));
        rows.push_back({s, static_cast<int64_t>(t), samples[s].tokens[t], samples[s].supervised[t] != 0, slot});
      }
      for (const Tensor& item : samples[s].media) {
        for (int64_t r = 0; r < item.size(0); ++r) media.push_back(item[r][0].item<double>());
      }
    }
    std::vector<int64_t> tokens, loss_rows, targets;
    for (size_t r = 0; r < rows.size(); ++r) {
      tokens.push_back(rows[r].token);
      const bool same = r + 1 < rows.size() && rows[r + 1].sample == rows[r].sample;
      if (!same || !rows[r + 1].supervised) continue;
      EXPECT_FALSE(rows[r + 1].slot) << "a media slot is a target";
      loss_rows.push_back(static_cast<int64_t>(r));
      targets.push_back(rows[r + 1].token);
    }
    EXPECT_EQ(values(batch.tokens), tokens);
    EXPECT_EQ(values(batch.loss_rows), loss_rows);
    EXPECT_EQ(values(batch.targets), targets);
    const Segments& text = batch.text.at("");
    EXPECT_EQ(text.rows(), static_cast<int64_t>(rows.size()));
    ASSERT_EQ(text.count(), 6);
    int64_t supervised = 0;
    for (size_t s = 0; s < 6; ++s) {
      EXPECT_EQ(text.length(static_cast<int64_t>(s)), samples[s].verdict.tokens);
      EXPECT_EQ(text.keys[s].sample, samples[s].verdict.sample);
      EXPECT_EQ(text.keys[s].occurrence, 0u);
      supervised += samples[s].verdict.supervised;
    }
    for (size_t r = 0; r < rows.size(); ++r) EXPECT_EQ(text.positions[r], rows[r].place);
    EXPECT_EQ(supervised, static_cast<int64_t>(targets.size())) << "the plan's denominator";
    loss_rows_seen += supervised;
    slots_seen += static_cast<int64_t>(slots.size());

    if (slots.empty()) {
      EXPECT_TRUE(batch.items.empty());
      continue;
    }
    const EncoderBatch& items = batch.pass("image");
    EXPECT_EQ(values(batch.landing("image").slots), slots);
    EXPECT_EQ(items.media.scalar_type(), at::kDouble);
    ASSERT_EQ(items.media.size(0), static_cast<int64_t>(media.size()));
    for (size_t r = 0; r < media.size(); ++r)
      EXPECT_EQ(items.media[static_cast<int64_t>(r)][0].item<double>(), media[r]);
    EXPECT_EQ(items.encoder.at("").rows(), static_cast<int64_t>(media.size()));
    EXPECT_EQ(items.connector.at("").rows(), static_cast<int64_t>(media.size()));
    EXPECT_EQ(items.connector.at("slots").rows(), static_cast<int64_t>(slots.size()));
    EXPECT_TRUE(items.to_connector.identity);
    EXPECT_TRUE(batch.landing("image").to_backbone.identity);
  }
  EXPECT_GT(loss_rows_seen, 100);
  EXPECT_GT(slots_seen, 100);
}

TEST(BatchBuilder, PartitionsPositionsAndPermutationOfItems) {
  FakeKit kit;
  kit.encoder.windows = true;
  const PreparedSample a =
      kit.preparer.prepare(RawSample{7,
                                     "a",
                                     {SamplePart::make_media(fake_picture(2, 3, 1)), SamplePart::make_text("x", true),
                                      SamplePart::make_media(fake_picture(1, 2, 5))}});
  const PreparedSample b = kit.preparer.prepare(RawSample{8, "b", {SamplePart::make_media(fake_picture(2, 1, 9))}});
  const ModelBatch batch = build_batch({&a, &b}, {{"image", {&kit.encoder, at::kFloat}}});
  const EncoderBatch& items = batch.pass("image");
  const Segments& whole = items.encoder.at("");
  EXPECT_EQ(whole.offsets, (std::vector<int64_t>{0, 6, 8, 10}));
  EXPECT_EQ(whole.positions, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 0, 1, 0, 1}));
  EXPECT_EQ(whole.keys[0].occurrence, 1u);
  EXPECT_EQ(whole.keys[1].occurrence, 2u);
  EXPECT_EQ(whole.keys[1].sample, 7u);
  EXPECT_EQ(whole.keys[2].sample, 8u);
  const Segments& rows = items.encoder.at("rows");
  EXPECT_EQ(rows.offsets, (std::vector<int64_t>{0, 3, 6, 8, 9, 10}));
  EXPECT_EQ(rows.position_axes, 2);
  EXPECT_EQ(rows.positions, (std::vector<int64_t>{0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2, 0, 0, 0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(rows.keys[1].first_row, 3);
  EXPECT_EQ(rows.keys[2].first_row, 0);
  EXPECT_FALSE(items.to_connector.identity);
  EXPECT_FALSE(items.to_connector.route.remote());
  EXPECT_EQ(items.to_connector.rows, 10);
  const Tensor outputs = at::arange(10, at::kLong), natural = at::full({10}, -1, at::kLong);
  redistribute(alone(), "test", {{&items.to_connector.route, outputs, natural}});
  EXPECT_EQ(values(natural), (std::vector<int64_t>{5, 4, 3, 2, 1, 0, 7, 6, 9, 8}));
  EXPECT_TRUE(batch.landing("image").to_backbone.identity);
  EXPECT_EQ(values(batch.landing("image").slots), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 8, 9, 11, 12}));
}

TEST(BatchBuilder, TwoModalitiesKeepTheirOwnOrder) {
  FakeKit kit;
  test::FakeEncoder second;
  const Preparer preparer(PreparerOptions{
      {{"image", {&kit.encoder, 1}}, {"depth", {&second, 1}}}, kit.tokenizer.get(), 64, OverLong::error, 1});
  const PreparedSample a = preparer.prepare(
      RawSample{1,
                "a",
                {SamplePart::make_media(fake_picture(1, 2, 1, "depth")), SamplePart::make_media(fake_picture(1, 1, 2)),
                 SamplePart::make_media(fake_picture(1, 1, 3, "depth"))}});
  const ModelBatch batch = build_batch({&a}, {{"image", {&kit.encoder, at::kFloat}}, {"depth", {&second, at::kFloat}}});
  EXPECT_EQ(values(batch.landing("depth").slots), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(values(batch.landing("image").slots), (std::vector<int64_t>{3}));
  EXPECT_EQ(batch.pass("depth").encoder.at("").keys[1].occurrence, 3u);
  EXPECT_EQ(batch.pass("image").encoder.at("").keys[0].occurrence, 2u);
}

TEST(BatchBuilder, PromptsEndBeforeTheLastAnswer) {
  FakeKit kit;
  const BatchModalities modalities = {{"image", {&kit.encoder, at::kFloat}}};
  const PreparedSample a =
      kit.preparer.prepare(RawSample{1,
                                     "a",
                                     {SamplePart::make_media(fake_picture(1, 2, 1)), SamplePart::make_text("q", false),
                                      SamplePart::make_text("yes", true), SamplePart::make_media(fake_picture(1, 3, 2)),
                                      SamplePart::make_text("no", true)}});
  const PreparedSample b = kit.preparer.prepare(RawSample{2, "b", {SamplePart::make_text("only a question", false)}});
  const PreparedSample c = kit.preparer.prepare(
      RawSample{3, "c", {SamplePart::make_text("q", false), SamplePart::make_text("answer", true)}});
  EXPECT_EQ(answer_begin(a), 10);
  EXPECT_EQ(answer_begin(b), 16);
  EXPECT_EQ(answer_begin(c), 2);
  const ModelBatch batch = build_prompt_batch({&a, &b, &c}, modalities);
  const Segments& text = batch.text.at("");
  EXPECT_EQ(text.offsets, (std::vector<int64_t>{0, 10, 26, 28}));
  EXPECT_EQ(values(batch.loss_rows), (std::vector<int64_t>{9, 25, 27}));
  EXPECT_FALSE(batch.targets.defined());
  // The earlier answer is given as it is, and so is the picture after it.
  EXPECT_EQ(values(batch.tokens.slice(0, 0, 10)),
            (std::vector<int64_t>{kit.tokenizer->bos(), 0, 0, 'q', 'y', 'e', 's', 0, 0, 0}));
  EXPECT_EQ(values(batch.landing("image").slots), (std::vector<int64_t>{1, 2, 7, 8, 9}));
}

TEST(BatchBuilder, MediaOfAnAnswerAreNotShown) {
  FakeKit kit;
  PreparedSample a = kit.preparer.prepare(RawSample{
      1, "a", {SamplePart::make_media(fake_picture(1, 2, 1)), SamplePart::make_media(fake_picture(1, 3, 2))}});
  a.supervised.assign(a.tokens.size(), 0);
  a.supervised[3] = a.supervised[4] = a.supervised[5] = 1;  // as if the second picture were to be written
  const ModelBatch batch = build_prompt_batch({&a}, {{"image", {&kit.encoder, at::kFloat}}});
  EXPECT_EQ(batch.text.at("").offsets, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(values(batch.landing("image").slots), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(batch.pass("image").media.size(0), 2);
}

TEST(BatchBuilder, AnEmptyMicrobatchHasNoRows) {
  const ModelBatch batch = build_batch(std::vector<const PreparedSample*>{}, {});
  EXPECT_EQ(batch.tokens.size(0), 0);
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_EQ(batch.loss_rows.size(0), 0);
  EXPECT_EQ(batch.targets.size(0), 0);
  EXPECT_EQ(batch.text.at("").count(), 0);
  EXPECT_TRUE(batch.items.empty());
}

TEST(BatchBuilder, EmbeddingsThatAreAStreamTakeNoTokens) {
  FakeKit kit;
  test::FakeEncoder second;
  PreparerOptions options{{{"image", {&kit.encoder, 1}}}, kit.tokenizer.get(), 64, OverLong::error, 1};
  options.modalities["clip"] = {&second, 1};
  options.modalities["clip"].in_text = false;
  const Preparer preparer(options);
  const PreparedSample a = preparer.prepare(
      RawSample{7,
                "a",
                {SamplePart::make_media(fake_picture(1, 2, 1, "clip")), SamplePart::make_text("x", true),
                 SamplePart::make_media(fake_picture(2, 2, 3, "clip"))}});
  const PreparedSample b = preparer.prepare(RawSample{8, "b", {SamplePart::make_text("y", false)}});
  EXPECT_EQ(a.verdict.tokens, 2);
  EXPECT_EQ(a.verdict.items[0].begin, -1);
  BatchModalities modalities = {{"image", {&kit.encoder, at::kFloat}}, {"clip", {&second, at::kFloat}}};
  modalities["clip"].stream = "clips";
  const ModelBatch batch = build_batch({&a, &b}, modalities);
  EXPECT_EQ(batch.text.at("").offsets, (std::vector<int64_t>{0, 2, 4}));
  const Segments& clips = batch.text.at("clips");
  EXPECT_EQ(clips.offsets, (std::vector<int64_t>{0, 6, 6}));  // one segment per sample, with or without clips
  EXPECT_EQ(clips.ids, batch.text.at("").ids);
  EXPECT_EQ(clips.keys[0].sample, 7u);
  EXPECT_EQ(values(batch.landing("clip").slots), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(batch.landing("clip").to_backbone.identity);

  // Prompts show them whole; without any, the stream is there and empty.
  EXPECT_EQ(build_prompt_batch({&a}, modalities).text.at("clips").rows(), 6);
  const ModelBatch none = build_batch({&b}, modalities);
  EXPECT_EQ(none.text.at("clips").offsets, (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(none.items.empty());
  EXPECT_EQ(build_batch(std::vector<const PreparedSample*>{}, modalities).text.at("clips").count(), 0);
}

TEST(BatchBuilder, ALayoutThatContradictsItselfIsThePluginsFault) {
  class Wrong : public test::FakeEncoder {
   public:
    ItemLayout layout(const ItemMeta& meta) const override {
      ItemLayout out = whole_item(meta.tokens);
      change(out);
      return out;
    }
    std::function<void(ItemLayout&)> change;
  } wrong;
  FakeKit kit;
  const PreparedSample a =
      kit.preparer.prepare(RawSample{1, "train.0#4", {SamplePart::make_media(fake_picture(1, 3, 1))}});
  const auto refusal = [&](std::function<void(ItemLayout&)> change) {
    wrong.change = std::move(change);
    std::string text = test::line_of<PluginError>([&] { build_batch({&a}, {{"image", {&wrong, at::kFloat}}}); });
    EXPECT_HAS(text, "encoders.image: layout() of an item of train.0#4: ");
    return text;
  };
  EXPECT_HAS(refusal([](ItemLayout& l) { l.partitions[""].lengths = {2}; }),
             "the default partition has 2 rows, measure() said 3");
  EXPECT_HAS(refusal([](ItemLayout& l) {
               l.partitions[""].positions = {1, 2};
             }),
             "2 positions; expected 3 rows x 1 axes");
  EXPECT_HAS(refusal([](ItemLayout& l) { l.partitions[""].lengths = {4, -1}; }), "a segment of -1 rows");
  EXPECT_HAS(refusal([](ItemLayout& l) { l.partitions.clear(); }), "no default partition");
  EXPECT_HAS(refusal([](ItemLayout& l) { l.permutation = {0, 0, 1}; }), "permutation is not one of its 3 output rows");
  EXPECT_HAS(refusal([](ItemLayout& l) { l.permutation = {0, 1}; }), "permutation is not one of its 3 output rows");
}

}  // namespace
}  // namespace loom
