#pragma once
// A small captioner made of core/nn layers, and batches for it without the data layer: what parity tests compare.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/model/multimodal_model.h"
#include "core/nn/embedding.h"
#include "core/nn/linear.h"
#include "core/nn/logprob_head.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"

namespace loom::test {

struct TinyOptions {
  at::ScalarType master = at::kDouble;
  at::ScalarType compute = at::kDouble;
  bool recompute = false;
  bool always_slab = false;
  bool tied = true;
  bool interior_loss = false;
  double dropout = 0;
  std::vector<std::string> frozen{};
  c10::Device device = c10::Device(at::kCPU);
};

inline constexpr int64_t kMediaWidth = 6, kWidth = 12, kVocab = 11;

class TinyEncoder : public Encoder {
 public:
  TinyEncoder(const Declarer& d, const TinyOptions& options) : options_(options) {
    UnitDecl embed{"embed", {{"media", kMediaWidth, "", false}}, {{"hidden", 8, "", false}}, Mixes::none, true, {}};
    embed_ = std::make_unique<Linear>(d.unit(embed), kMediaWidth, 8);
    UnitDecl block{"block", {{"hidden", 8, "", false}}, {{"features", 8, "", false}}, Mixes::attention, true, {}};
    const Declarer b = d.unit(block);
    norm_ = std::make_unique<LayerNorm>(b.child("norm"), 8);
    SelfAttentionOptions attention;
    attention.width = 8;
    attention.heads = 2;
    attention_ = std::make_unique<SelfAttention>(b.child("attention"), attention);
    drop_ = b.site("drop");
  }
  void run(int unit, Streams& s, UnitContext& ctx) override {
    if (unit == 0) return s.set("hidden", (*embed_)(s["media"], ctx));
    const Tensor& x = s["hidden"];
    Tensor y = ctx.dropout((*attention_)((*norm_)(x, ctx), ctx), options_.dropout, drop_);
    if (options_.interior_loss) ctx.loss("balance", 0.1 * (y * y).sum(), Denominator::rows);
    s.set("features", x + ctx.keep(y));
  }
  int64_t width() const override { return 8; }
  int64_t media_width() const override { return kMediaWidth; }
  ItemMeta measure(const MediaInfo& info) const override { return {info.width, info.width, 0, {}}; }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  TinyOptions options_;
  std::unique_ptr<Linear> embed_;
  std::unique_ptr<LayerNorm> norm_;
  std::unique_ptr<SelfAttention> attention_;
  Site drop_;
};

class TinyConnector : public Connector {
 public:
  explicit TinyConnector(const Declarer& d) {
    UnitDecl unit{"mlp", {{"features", 8, "", false}}, {{"embeddings", kWidth, "slots", false}}, Mixes::none, true, {}};
    mlp_ = std::make_unique<GeluMlp>(d.unit(unit), GeluMlpOptions{8, 10, kWidth, true, Gelu::exact});
  }
  void run(int, Streams& s, UnitContext& ctx) override { s.set("embeddings", (*mlp_)(s["features"], ctx)); }

 private:
  std::unique_ptr<GeluMlp> mlp_;
};

class TinyBackbone : public Backbone {
 public:
  TinyBackbone(const Declarer& d, const TinyOptions& options) : options_(options) {
    const StreamDecl hidden{"hidden", kWidth, "", false};
    UnitDecl embed{"embed", {{"tokens", 0, "", false}}, {hidden}, Mixes::none, true, {}};
    embed_ = std::make_unique<Embedding>(d.unit(embed), kVocab, kWidth, Init::normal(0.5));
    for (int i = 0; i < 2; ++i) {
      UnitDecl block{concat("blocks.", i), {hidden}, {hidden}, Mixes::attention, true, {}};
      const Declarer b = d.unit(block);
      norms_.emplace_back(b.child("norm"), kWidth);
      SelfAttentionOptions attention;
      attention.width = kWidth;
      attention.heads = 3;
      attention.kv_heads = 1;
      attention.head_dim = 4;
      attention.causal = true;
      attention.rotary_theta = 100;
      attention.qk_norm = i == 1;
      attentions_.emplace_back(b.child("attention"), attention);
      mlps_.emplace_back(b.child("mlp"), kWidth, 16);
      drops_.push_back(b.site("drop"));
    }
    UnitDecl head{"head",
                  {hidden, {"loss_rows", 0, "", false}, {"targets", 0, "", true}},
                  {{"logprob", 0, "", true}, {"logits", kVocab, "", true}},
                  Mixes::none,
                  true,
                  {}};
    const Declarer h = d.unit(head);
    norms_.emplace_back(h.child("norm"), kWidth);
    if (options.tied) {
      head_ = std::make_unique<LogProbHead>(h, embed_->weight());
    } else {
      head_ = std::make_unique<LogProbHead>(h, kVocab, kWidth, Init::normal(0.5));
    }
  }
  void run(int unit, Streams& s, UnitContext& ctx) override {
    if (unit == 0) return s.set("hidden", (*embed_)(s["tokens"], ctx));
    const Tensor& x = s["hidden"];
    if (unit <= 2) {
      Tensor y =
          x + ctx.dropout(attentions_[unit - 1](norms_[unit - 1](x, ctx), ctx), options_.dropout, drops_[unit - 1]);
      return s.set("hidden", y + mlps_[unit - 1](y, ctx));
    }
    const Tensor rows = norms_[2](x.index_select(0, s["loss_rows"]), ctx);
    if (s.has("targets")) return s.set("logprob", head_->log_probs(rows, s["targets"], ctx));
    s.set("logits", head_->logits(rows, ctx));
  }
  int64_t width() const override { return kWidth; }
  int64_t vocab() const override { return kVocab; }

 private:
  TinyOptions options_;
  std::unique_ptr<Embedding> embed_;
  std::vector<RmsNorm> norms_;
  std::vector<SelfAttention> attentions_;
  std::vector<SwiGlu> mlps_;
  std::vector<Site> drops_;
  std::unique_ptr<LogProbHead> head_;
};

template <class Made>
std::shared_ptr<BoundComponent> bind(const std::string& name, const TinyOptions& options, const Made& make) {
  Declarations declarations;
  declarations.component = name;
  std::shared_ptr<Component> component = make(Declarer(declarations));
  BindOptions bound;
  bound.master = options.master;
  bound.compute = options.compute;
  bound.always_slab = options.always_slab;
  bound.origin = "plugin 'tiny'";
  bound.recompute = options.recompute;
  bound.frozen = options.frozen;
  bound.device = options.device;
  return std::make_shared<BoundComponent>(component, std::move(declarations), bound);
}

inline std::unique_ptr<MultimodalModel> tiny_model(const TinyOptions& options = {}) {
  ModelParts parts;
  parts.encoders["image"] =
      bind("encoders.image", options, [&](Declarer d) { return std::make_shared<TinyEncoder>(d, options); });
  parts.connectors["image"] =
      bind("connectors.image", options, [&](Declarer d) { return std::make_shared<TinyConnector>(d); });
  parts.backbone = bind("backbone", options, [&](Declarer d) { return std::make_shared<TinyBackbone>(d, options); });
  auto model = std::make_unique<MultimodalModel>(std::move(parts), 7);
  model->init_weights(3);
  return model;
}

// A sample: media items (rows each) come first, then text; every text token after the first is supervised with
// probability 1/2.
struct TinySample {
  uint64_t key = 0;
  std::vector<int64_t> items;  // rows of each
  int64_t text = 4;
};

// Contents are a function of (key, salt): another salt, other contents at equal row counts.
inline ModelBatch tiny_batch(const std::vector<TinySample>& samples, at::ScalarType dtype, uint64_t salt = 0) {
  ModelBatch batch;
  std::vector<int64_t> tokens, rows, targets, slots;
  std::vector<double> media;
  Segments& text = batch.text[""];
  EncoderBatch items;
  Segments &encoder = items.encoder[""], &outputs = items.connector[""], &slot_rows = items.connector["slots"];
  for (const TinySample& sample : samples) {
    const Philox random({salt, Purpose::sample, 0, 0, sample.key});
    uint64_t draw = 0;
    const auto begin = static_cast<int64_t>(tokens.size());
    for (size_t i = 0; i < sample.items.size(); ++i) {
      const SegmentKey key{sample.key, i + 1, 0};
      encoder.append(sample.items[i], key);
      outputs.append(sample.items[i], key);
      slot_rows.append(sample.items[i], key);
      for (int64_t r = 0; r < sample.items[i]; ++r) {
        slots.push_back(static_cast<int64_t>(tokens.size()));
        tokens.push_back(0);
        for (int64_t c = 0; c < kMediaWidth; ++c) media.push_back(random.normal(draw++));
      }
    }
    // Which tokens are supervised depends on the key alone, so that another salt keeps all counts.
    const Philox supervised({99, Purpose::sample, 0, 0, sample.key});
    for (int64_t t = 0; t < sample.text; ++t) {
      const auto token = static_cast<int64_t>(random.below(kVocab, draw++));
      const auto here = static_cast<int64_t>(tokens.size());
      if (here > begin && (t + 1 == sample.text || supervised.uniform(t) < 0.5)) {
        rows.push_back(here - 1);
        targets.push_back(token);
      }
      tokens.push_back(token);
    }
    text.append(static_cast<int64_t>(tokens.size()) - begin, {sample.key, 0, 0});
  }
  const auto longs = [](const std::vector<int64_t>& v) { return at::tensor(at::ArrayRef<int64_t>(v), at::kLong); };
  batch.tokens = longs(tokens);
  batch.loss_rows = longs(rows);
  batch.targets = longs(targets);
  if (!slots.empty()) {
    items.media = at::tensor(at::ArrayRef<double>(media), at::kDouble).view({-1, kMediaWidth}).to(dtype);
    items.modality = "image";
    Landing& landing = items.landings.emplace_back();
    landing.rows = landing.to_backbone.rows = static_cast<int64_t>(slots.size());
    landing.slots = longs(slots);
    batch.encode.push_back(std::move(items));
    batch.items["image"] = 0;
  }
  return batch;
}

inline Denominators tiny_denominators(double supervised, double rows, double samples) {
  Denominators d;
  d.supervised_tokens = supervised;
  d.rows = rows;
  d.samples = samples;
  return d;
}

struct TinyStep {
  double loss = 0;  // sum over targets
  std::map<std::string, Tensor> gradients;
  std::map<std::string, double> interior;
  TapeCounters counters;
};

inline std::map<std::string, Tensor> gradients_of(MultimodalModel& model) {
  std::map<std::string, Tensor> out;
  for (UnitBuffer* buffer : model.buffers()) {
    if (!buffer->trainable()) continue;
    for (size_t e = 0; e < buffer->entries().size(); ++e)
      out[buffer->entries()[e].name] = buffer->gradient_of(e).clone();
  }
  return out;
}

// One optimizer step's gradients from the given microbatches, with global denominators.
inline TinyStep tiny_step(MultimodalModel& model, const std::vector<ModelBatch>& batches, int64_t step = 1) {
  double supervised = 0, rows = 0, samples = 0;
  for (const ModelBatch& b : batches) {
    supervised += static_cast<double>(b.targets.size(0));
    rows += static_cast<double>(b.tokens.size(0));
    samples += static_cast<double>(b.text.at("").count());
  }
  model.zero_gradients();
  TinyStep out;
  for (const ModelBatch& b : batches) {
    const MicrobatchResult r = model.forward_backward(b, step, tiny_denominators(supervised, rows, samples));
    out.loss += r.loss_sum;
    for (const auto& [name, value] : r.interior) out.interior[name] += value;
    out.counters += r.counters;
  }
  model.finish_gradients();
  out.gradients = gradients_of(model);
  return out;
}

// The measure of design.md, section 5: per tensor |g - g'| / max(|g|, 1e-6 |all gradients of its unit|); units are
// approximated by the name up to the last two parts.
inline double worst_difference(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double all = 0, worst = 0;
  for (const auto& [name, g] : a) all += g.to(at::kDouble).pow(2).sum().item<double>();
  for (const auto& [name, g] : a) {
    const Tensor x = g.to(at::kDouble), y = b.at(name).to(at::kDouble);
    const double difference = (x - y).norm().item<double>();
    worst = std::max(worst, difference / std::max(x.norm().item<double>(), 1e-6 * std::sqrt(all)));
  }
  return worst;
}

inline void expect_bitwise(const TinyStep& a, const TinyStep& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, g] : a.gradients) EXPECT_TRUE(at::equal(g, b.gradients.at(name))) << name;
}

}  // namespace loom::test
