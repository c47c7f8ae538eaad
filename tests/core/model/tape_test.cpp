// The tape and the storage behind it: recompute, slabs, generations, frozen parts, tied weights, faults of plugins.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

const std::vector<TinySample> kSamples{{1, {3}, 5}, {2, {2, 4}, 3}, {3, {}, 7}, {4, {5}, 2}};

TEST(Tape, WholeModelMatchesFiniteDifferences) {
  for (const bool tied : {true, false}) {
    TinyOptions options;
    options.tied = tied;
    options.interior_loss = true;
    options.dropout = 0.2;
    const auto model = tiny_model(options);
    const ModelBatch batch = tiny_batch(kSamples, at::kDouble);
    const TinyStep step = tiny_step(*model, {batch});
    const Denominators d =
        tiny_denominators(static_cast<double>(batch.targets.size(0)), static_cast<double>(batch.tokens.size(0)), 4);
    const auto objective = [&] {
      const MicrobatchResult r = model->forward_backward(batch, 1, d);
      return r.loss_sum / d.supervised_tokens + r.interior.at("balance");
    };
    for (UnitBuffer* buffer : model->buffers()) {
      for (size_t e = 0; e < buffer->entries().size(); ++e) {
        const BufferEntry& entry = buffer->entries()[e];
        double* value = buffer->master().data_ptr<double>() + entry.offset + entry.numel / 2;
        const double analytic = step.gradients.at(entry.name).view({-1})[entry.numel / 2].item<double>();
        const double kept = *value, h = 1e-5;
        *value = kept + h;
        const double up = objective();
        *value = kept - h;
        const double down = objective();
        *value = kept;
        EXPECT_NEAR(analytic, (up - down) / (2 * h), 1e-8 + 1e-6 * std::abs(analytic))
            << entry.name << " tied " << tied;
      }
    }
  }
}

TEST(Tape, RecomputeIsBitIdentical) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    TinyOptions options{dtype, dtype};
    options.dropout = 0.3;
    options.interior_loss = true;
    const auto plain = tiny_model(options);
    options.recompute = true;
    const auto again = tiny_model(options);
    const ModelBatch batch = tiny_batch(kSamples, dtype);
    const TinyStep a = tiny_step(*plain, {batch}), b = tiny_step(*again, {batch});
    expect_bitwise(a, b);
    EXPECT_EQ(a.interior, b.interior);
    EXPECT_EQ(a.counters.units_recomputed, 0);
    EXPECT_EQ(b.counters.units_recomputed, b.counters.units_run);
  }
}

TEST(Tape, SlabsAndWeightsInPlaceAgreeBitwise) {
  for (const bool recompute : {false, true}) {
    TinyOptions options;
    options.recompute = recompute;
    const auto plain = tiny_model(options);
    options.always_slab = true;
    const auto slabs = tiny_model(options);
    const ModelBatch batch = tiny_batch(kSamples, at::kDouble);
    expect_bitwise(tiny_step(*plain, {batch}), tiny_step(*slabs, {batch}));
    for (const UnitBuffer* buffer : slabs->buffers()) {
      EXPECT_FALSE(buffer->in_place());
      EXPECT_FALSE(buffer->resident()) << buffer->unit();
    }
  }
}

TEST(Tape, ComputesInBfloat16FromFloatMasters) {
  const auto exact = tiny_model({at::kFloat, at::kFloat});
  const auto rounded = tiny_model({at::kFloat, at::kBFloat16});
  const TinyStep a = tiny_step(*exact, {tiny_batch(kSamples, at::kFloat)});
  const TinyStep b = tiny_step(*rounded, {tiny_batch(kSamples, at::kBFloat16)});
  EXPECT_NE(a.loss, b.loss);
  EXPECT_NEAR(a.loss, b.loss, 0.05 * a.loss);
  for (const auto& [name, g] : b.gradients) EXPECT_EQ(g.scalar_type(), at::kFloat) << name;
}

TEST(Tape, RefusesWeightsThatChangedSinceForward) {
  TinyOptions options;
  const auto component =
      bind("encoders.image", options, [&](Declarer d) { return std::make_shared<TinyEncoder>(d, options); });
  component->init_weights(1);
  SlabPool pool(component->largest_buffer_bytes());
  const ModelBatch batch = tiny_batch(kSamples, at::kDouble);
  const EncoderBatch& items = batch.pass("image");
  TapeContext context;
  context.partitions = &items.encoder;
  Tape tape(*component, pool, context);
  StreamMap streams{{"media", items.media}};
  tape.forward(0, streams);
  tape.forward(1, streams);
  StreamMap gradients{{"features", at::ones_like(streams.at("features"))}};
  tape.backward(1, gradients);
  component->buffers()[0]->master_written();
  EXPECT_THROW(tape.backward(0, gradients), InternalError);
}

TEST(Tape, FrozenPartsHaveNoGradientAndChangeNoOther) {
  const auto full = tiny_model();
  TinyOptions options;
  options.frozen = {"encoders.image", "*.blocks.0.attention.*"};
  const auto partly = tiny_model(options);
  const ModelBatch batch = tiny_batch(kSamples, at::kDouble);
  const TinyStep a = tiny_step(*full, {batch}), b = tiny_step(*partly, {batch});
  EXPECT_EQ(a.loss, b.loss);
  size_t frozen = 0;
  for (const auto& [name, g] : a.gradients) {
    const auto found = b.gradients.find(name);
    if (found == b.gradients.end()) {
      ++frozen;
      EXPECT_TRUE(name.rfind("encoders.image.", 0) == 0 || name.rfind("backbone.blocks.0.attention", 0) == 0) << name;
    } else {
      EXPECT_TRUE(at::equal(g, found->second)) << name;
    }
  }
  EXPECT_GT(frozen, 6u);
  EXPECT_EQ(partly->parts().encoders.at("image")->params_trainable(), 0);
}

TEST(Tape, TiedWeightLivesInOneBuffer) {
  const auto model = tiny_model();
  int64_t named = 0;
  for (UnitBuffer* buffer : model->buffers()) {
    for (const BufferEntry& entry : buffer->entries()) named += entry.shape == std::vector<int64_t>{kVocab, kWidth};
  }
  EXPECT_EQ(named, 1);
}

TEST(Tape, InitDoesNotDependOnWhatElseIsDeclared) {
  const auto tied = tiny_model();
  TinyOptions options;
  options.tied = false;
  const auto separate = tiny_model(options);
  std::map<std::string, Tensor> values;
  for (UnitBuffer* buffer : tied->buffers()) {
    for (size_t e = 0; e < buffer->entries().size(); ++e)
      values[buffer->entries()[e].name] = buffer->master_of(e).clone();
  }
  int64_t compared = 0;
  for (UnitBuffer* buffer : separate->buffers()) {
    for (size_t e = 0; e < buffer->entries().size(); ++e) {
      const auto found = values.find(buffer->entries()[e].name);
      if (found == values.end()) continue;
      ++compared;
      EXPECT_TRUE(at::equal(found->second, buffer->master_of(e))) << found->first;
    }
  }
  EXPECT_EQ(compared, static_cast<int64_t>(values.size()));
}

class Faulty : public Encoder {
 public:
  enum class Fault { throws = 1, silent, wrong_width, undeclared };
  Faulty(const Declarer& d, Fault fault) : fault_(fault) {
    UnitDecl first{"first", {{"media", kMediaWidth, "", false}}, {{"hidden", 8, "", false}}, Mixes::none, true, {}};
    inner_ = std::make_unique<Linear>(d.unit(first), kMediaWidth, 8);
    UnitDecl second{"second", {{"hidden", 8, "", false}}, {{"features", 8, "", false}}, Mixes::none, true, {}};
    static_cast<void>(d.unit(second));
  }
  void run(int unit, Streams& s, UnitContext& ctx) override {
    if (unit == 0) return s.set("hidden", (*inner_)(s["media"], ctx));
    if (fault_ == Fault::throws) throw std::runtime_error("no such gain table\nsecond line");
    if (fault_ == Fault::wrong_width) s.set("features", s["hidden"].narrow(1, 0, 3));
    if (fault_ == Fault::undeclared) s.set("features", (*inner_)(s["hidden"], ctx));
  }
  int64_t width() const override { return 8; }
  int64_t media_width() const override { return kMediaWidth; }
  ItemMeta measure(const MediaInfo&) const override { return {}; }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  Fault fault_;
  std::unique_ptr<Linear> inner_;
};

std::string fault_text(Faulty::Fault fault) {
  const TinyOptions options;
  const auto component =
      bind("encoders.radar", options, [&](Declarer d) { return std::make_shared<Faulty>(d, fault); });
  SlabPool pool(component->largest_buffer_bytes());
  const ModelBatch batch = tiny_batch(kSamples, at::kDouble);
  TapeContext context;
  context.partitions = &batch.pass("image").encoder;
  Tape tape(*component, pool, context);
  StreamMap streams{{"media", batch.pass("image").media}};
  tape.forward(0, streams);
  try {
    tape.forward(1, streams);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "no PluginError";
}

TEST(Tape, FaultsOfAPluginAreOneLineThatNamesIt) {
  EXPECT_EQ(fault_text(Faulty::Fault::throws),
            "encoders.radar.second (plugin 'tiny') failed in run: no such gain table");
  EXPECT_EQ(fault_text(Faulty::Fault::silent),
            "encoders.radar.second (plugin 'tiny'): did not set its output stream 'features'");
  EXPECT_EQ(fault_text(Faulty::Fault::wrong_width),
            "encoders.radar.second (plugin 'tiny'): stream 'features' was declared [rows, 8], found [14, 3]");
  EXPECT_NE(fault_text(Faulty::Fault::undeclared).find("unit 'second' reads it without having declared it"),
            std::string::npos);
}

}  // namespace
}  // namespace loom::test
