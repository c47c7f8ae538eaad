// An ordinary torch::nn::Module as a component: same gradients as plain autograd, parameters in the core's buffers.
#include <gtest/gtest.h>

#include <torch/nn/functional.h>
#include <torch/nn/modules/linear.h>

#include "core/model/from_module.h"
#include "tests/support/mean_mixer.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

class Wrapped : public Encoder {
 public:
  Wrapped(const Declarer& d, double drop)
      : inner_(from_module<MeanMixerImpl>(d, {"module", "media", "features", kMediaWidth, 8}, 5, kMediaWidth, 9, 8,
                                          drop)) {}
  void run(int, Streams& s, UnitContext& ctx) override { inner_.run(s, ctx); }
  int64_t width() const override { return 8; }
  int64_t media_width() const override { return kMediaWidth; }
  ItemMeta measure(const MediaInfo&) const override { return {}; }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  WrappedModule inner_;
};

std::unique_ptr<MultimodalModel> wrapped_model(const TinyOptions& options, double drop) {
  ModelParts parts;
  parts.encoders["image"] =
      bind("encoders.image", options, [&](Declarer d) { return std::make_shared<Wrapped>(d, drop); });
  parts.connectors["image"] =
      bind("connectors.image", options, [&](Declarer d) { return std::make_shared<TinyConnector>(d); });
  parts.backbone = bind("backbone", options, [&](Declarer d) { return std::make_shared<TinyBackbone>(d, options); });
  auto model = std::make_unique<MultimodalModel>(std::move(parts), 7);
  model->init_weights(3);
  return model;
}

const std::vector<TinySample> kSamples{{1, {3}, 5}, {2, {2, 4}, 3}, {4, {5}, 2}};

TEST(FromModule, GradientsEqualPlainAutograd) {
  TinyOptions options{at::kFloat, at::kFloat};
  const auto component = bind("encoders.image", options, [&](Declarer d) { return std::make_shared<Wrapped>(d, 0.0); });
  component->init_weights(1);
  SlabPool pool(component->largest_buffer_bytes());
  const ModelBatch batch = tiny_batch(kSamples, at::kFloat);
  const EncoderBatch& items = batch.pass("image");
  TapeContext context;
  context.partitions = &items.encoder;
  Tape tape(*component, pool, context);
  StreamMap streams{{"media", items.media}};
  tape.forward(0, streams);
  StreamMap gradients{{"features", streams.at("features") * 2}};
  tape.backward(0, gradients);

  at::manual_seed(5);
  MeanMixerImpl plain(kMediaWidth, 9, 8, 0.0);
  std::vector<torch::Tensor> outputs;
  const Segments& rows = items.encoder.at("");
  for (int64_t i = 0; i < rows.count(); ++i)
    outputs.push_back(plain.forward(items.media.narrow(0, rows.offsets[i], rows.length(i))));
  const torch::Tensor all = torch::cat(outputs);
  EXPECT_TRUE(at::equal(all, streams.at("features")));
  all.pow(2).sum().backward();
  UnitBuffer& buffer = *component->buffers()[0];
  ASSERT_EQ(buffer.entries().size(), 4u);
  const auto named = plain.named_parameters();
  for (size_t e = 0; e < 4; ++e) {
    EXPECT_EQ(buffer.entries()[e].name, "encoders.image.module." + named[e].key());
    EXPECT_TRUE(at::allclose(buffer.gradient_of(e), named[e].value().grad(), 1e-5, 1e-6)) << named[e].key();
  }
}

TEST(FromModule, DropoutInsideSurvivesRecomputeAndPacking) {
  TinyOptions options;
  options.master = options.compute = at::kDouble;
  const auto plain = wrapped_model(options, 0.4);
  options.recompute = true;
  options.always_slab = true;
  const auto again = wrapped_model(options, 0.4);
  const ModelBatch batch = tiny_batch(kSamples, at::kDouble);
  const TinyStep a = tiny_step(*plain, {batch});
  expect_bitwise(a, tiny_step(*again, {batch}));
  std::vector<ModelBatch> separate;
  for (const TinySample& sample : kSamples) separate.push_back(tiny_batch({sample}, at::kDouble));
  EXPECT_LE(worst_difference(a.gradients, tiny_step(*again, separate).gradients), 1e-10);
}

}  // namespace
}  // namespace loom::test
