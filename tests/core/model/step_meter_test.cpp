// A dry run tells the same as the real pass: operations, and bytes at the peak.
#include "core/model/step_meter.h"

#include <gtest/gtest.h>

#include <string_view>

#include <ATen/ATen.h>

#include "core/model/from_module.h"
#include "core/nn/differentiable.h"
#include "core/parallel/memory_meter.h"
#include "tests/core/base/temp_folder.h"
#include "tests/support/mean_mixer.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

const std::vector<TinySample> kSamples{{1, {3}, 5}, {2, {2, 4}, 3}, {3, {}, 7}, {4, {5}, 200}};

struct Seen {
  int64_t peak = 0, before = 0, left = 0;
  Operations total;
  std::vector<UnitWork> units;
  PeakMoment moment;
};

// Of the second pass.
Seen watch(MultimodalModel& model, at::ScalarType dtype) {
  const c10::DeviceType device = model.device().type();
  StepMeter meter(model);
  Seen seen;
  for (int pass = 0; pass < 2; ++pass) {
    const ModelBatch batch = to_device(tiny_batch(kSamples, dtype), model.device());
    meter.restart();
    seen.before = memory_use(device).live;
    model.forward_backward(batch, 1, tiny_denominators(9, 30, 4));
    seen.left = memory_use(device).live - seen.before;
  }
  seen.peak = meter.peak().bytes - seen.before;
  seen.total = meter.total();
  seen.units = meter.units();
  seen.moment = meter.peak();
  return seen;
}

// On some processors a product of bf16 takes scratch memory of the library beneath LibTorch.
constexpr int64_t kScratchOfBf16 = 1024;

void expect_equal(const Seen& real, const Seen& dry, const char* what) {
  const bool half = std::string_view(what) == c10::toString(at::kBFloat16);
  EXPECT_GE(real.peak, dry.peak) << what;
  EXPECT_LE(real.peak, dry.peak + (half ? kScratchOfBf16 : 0)) << what;
  EXPECT_EQ(dry.left, 0) << what;
  EXPECT_EQ(real.total.products, dry.total.products) << what;
  EXPECT_EQ(real.total.attention, dry.total.attention) << what;
  EXPECT_EQ(real.total.again, dry.total.again) << what;
  EXPECT_EQ(real.moment.unit, dry.moment.unit) << what;
  EXPECT_EQ(real.moment.kept, dry.moment.kept) << what;
  EXPECT_GT(dry.total.attention, 0);
}

TEST(StepMeter, ADryRunCountsWhatARealPassCounts) {
  install_memory_meter();
  for (const at::ScalarType compute : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const bool recompute : {false, true}) {
      for (const bool tied : {false, true}) {
        TinyOptions options;
        options.master = compute == at::kDouble ? at::kDouble : at::kFloat;
        options.compute = compute;
        options.recompute = recompute;
        options.tied = tied;
        options.dropout = 0.2;
        options.interior_loss = true;
        const auto real = tiny_model(options);
        options.device = c10::Device(at::kMeta);
        const auto dry = tiny_model(options);
        const Seen a = watch(*real, compute), b = watch(*dry, compute);
        expect_equal(a, b, c10::toString(compute));
        EXPECT_EQ(b.total.again > 0.2 * b.total.model(), recompute);
      }
    }
  }
}

TEST(StepMeter, OperationsOfOneUnitAreThoseOfItsFormula) {
  install_memory_meter();
  TinyOptions options{at::kFloat, at::kFloat};
  options.device = c10::Device(at::kMeta);
  const auto model = tiny_model(options);
  StepMeter meter(*model);
  const ModelBatch batch = to_device(tiny_batch({{1, {}, 10}}, at::kFloat), model->device());
  model->forward_backward(batch, 1, {});
  const int64_t rows = 10, width = kWidth, kv = 4, hidden = 16;
  const double forward = 2.0 * rows * (width * (width + 2 * kv) + width * width + width * 2 * hidden + hidden * width);
  const double attention = 4.0 * 3 * 4 * (rows * (rows + 1) / 2);
  bool found = false;
  for (const UnitWork& unit : meter.units()) {
    if (unit.component != "backbone" || unit.unit != "blocks.1") continue;
    found = true;
    EXPECT_EQ(unit.forward.products, forward);
    EXPECT_EQ(unit.forward.attention, attention);
    EXPECT_EQ(unit.backward.products, 2 * forward);
    EXPECT_EQ(unit.backward.attention, 2 * attention);
    EXPECT_EQ(unit.backward.again, attention / 2);
    ASSERT_EQ(unit.attention.size(), 1u);
    EXPECT_TRUE(unit.attention[0].causal);
  }
  EXPECT_TRUE(found);
}

TEST(StepMeter, NothingIsWatchedAfterwards) {
  install_memory_meter();
  TinyOptions options{at::kFloat, at::kFloat};
  const auto model = tiny_model(options);
  { const StepMeter meter(*model); }
  EXPECT_EQ(model->observer(), nullptr);
  EXPECT_EQ(flop_sink(), nullptr);
  tiny_step(*model, {tiny_batch(kSamples, at::kFloat)});
}

// One unit that does what `body` says.
class Strange : public Encoder {
 public:
  using Body = std::function<Tensor(const Tensor&)>;
  Strange(const Declarer& d, Body body) : body_(std::move(body)) {
    UnitDecl unit{"odd", {{"media", kMediaWidth, "", false}}, {{"features", 8, "", false}}, Mixes::none, true, {}};
    linear_ = std::make_unique<Linear>(d.unit(unit), kMediaWidth, 8);
  }
  void run(int, Streams& s, UnitContext& ctx) override { s.set("features", body_((*linear_)(s["media"], ctx))); }
  int64_t width() const override { return 8; }
  int64_t media_width() const override { return kMediaWidth; }
  ItemMeta measure(const MediaInfo& info) const override { return {info.width, info.width, 0, {}}; }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  Body body_;
  std::unique_ptr<Linear> linear_;
};

std::unique_ptr<MultimodalModel> model_with(const TinyOptions& options,
                                            const std::function<std::shared_ptr<Encoder>(Declarer)>& encoder) {
  ModelParts parts;
  parts.encoders["image"] = test::bind("encoders.image", options, [&](Declarer d) { return encoder(d); });
  parts.connectors["image"] =
      bind("connectors.image", options, [&](Declarer d) { return std::make_shared<TinyConnector>(d); });
  parts.backbone = bind("backbone", options, [&](Declarer d) { return std::make_shared<TinyBackbone>(d, options); });
  auto model = std::make_unique<MultimodalModel>(std::move(parts), 7);
  model->init_weights(3);
  return model;
}

std::string refusal(const Strange::Body& body) {
  TinyOptions options{at::kFloat, at::kFloat};
  options.device = c10::Device(at::kMeta);
  const auto model = model_with(options, [&](Declarer d) { return std::make_shared<Strange>(d, body); });
  return message_of<PluginError>([&] { watch(*model, at::kFloat); });
}

TEST(StepMeter, WhatAPluginCannotDoWithoutMemoryIsOneLineWithItsUnit) {
  install_memory_meter();
  const std::string who = "encoders.image.odd (plugin 'tiny'): cannot be planned on tensors without memory: ";
  EXPECT_EQ(refusal([](const Tensor& x) { return x * x.sum().item<float>(); }),
            who + "it asks a tensor for its value (item)");
  EXPECT_EQ(refusal([](const Tensor& x) {
              return x + at::linalg_cholesky(x.t().mm(x)).sum() + at::histc(x).sum();
            }).substr(0, who.size()),
            who);
  const std::string memory = who + "it reads or writes the memory of a tensor by itself (data_ptr)";
  EXPECT_EQ(refusal([](const Tensor& x) {
              Tensor y = at::empty_like(x);
              y.data_ptr<float>()[0] = 1;
              return y;
            }),
            memory);
  // In its backward, too.
  EXPECT_EQ(refusal([](const Tensor& x) {
              return differentiable(x.detach() * 2, {x}, {}, [](const BackwardCall& call) {
                return std::vector<Tensor>{call.grad * call.grad.sum().item<float>()};
              });
            }),
            who + "it asks a tensor for its value (item)");
}

class Wrapped : public Encoder {
 public:
  explicit Wrapped(const Declarer& d)
      : inner_(from_module<MeanMixerImpl>(d, {"module", "media", "features", kMediaWidth, 8}, 5, kMediaWidth, 9, 8,
                                          0.1)) {}
  void run(int, Streams& s, UnitContext& ctx) override { inner_.run(s, ctx); }
  int64_t width() const override { return 8; }
  int64_t media_width() const override { return kMediaWidth; }
  ItemMeta measure(const MediaInfo&) const override { return {}; }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  WrappedModule inner_;
};

TEST(StepMeter, AnOrdinaryModuleRunsDryToo) {
  install_memory_meter();
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    TinyOptions options{at::kFloat, compute};
    const auto make = [](Declarer d) { return std::make_shared<Wrapped>(d); };
    const auto real = model_with(options, make);
    options.device = c10::Device(at::kMeta);
    const auto dry = model_with(options, make);
    expect_equal(watch(*real, compute), watch(*dry, compute), c10::toString(compute));
  }
}

// Layers of LibTorch that have no dry form of their own.
TEST(StepMeter, LayersOfLibTorchAllocateWhatTheyAllocateOnCpu) {
  install_memory_meter();
  const auto layers = [](const Tensor& x) {  // [rows, 8]
    Tensor y = at::layer_norm(x, {8}, at::ones({8}, x.options()), at::zeros({8}, x.options()));
    y = at::conv1d(y.t().unsqueeze(0), at::ones({8, 8, 3}, x.options()), {}, 1, 1).squeeze(0).t();
    y = at::where(y > 0, y, y * 0.5) + at::group_norm(y, 2);
    return at::softmax(y, 1) +
           at::dropout(y, 0.1, true).index_select(0, at::arange(y.size(0), at::kLong).to(y.device()));
  };
  TinyOptions options{at::kFloat, at::kFloat};
  const auto make = [&](Declarer d) { return std::make_shared<Strange>(d, layers); };
  const auto real = model_with(options, make);
  options.device = c10::Device(at::kMeta);
  const auto dry = model_with(options, make);
  const Seen a = watch(*real, at::kFloat), b = watch(*dry, at::kFloat);
  EXPECT_NEAR(static_cast<double>(b.peak), static_cast<double>(a.peak), 0.01 * static_cast<double>(a.peak));
  EXPECT_GT(b.total.products, 0);
}

}  // namespace
}  // namespace loom::test
