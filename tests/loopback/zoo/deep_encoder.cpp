#include "tests/loopback/zoo/deep_encoder.h"

#include <ATen/ATen.h>

namespace loom::test {
namespace {

constexpr int kTaps = 2;

std::string deep(int i) { return "deep." + std::to_string(i); }
std::string tap(int i) { return "tap." + std::to_string(i); }

}  // namespace

DeepEncoder::DeepEncoder(const Declarer& d, const ZooOptions& options) : options_(options) {
  const StreamDecl hidden{"hidden", kZooFeatures, "", false}, features{"features", kZooFeatures, "", false};
  embed_ = std::make_unique<Linear>(
      d.unit({"embed", {{"media", kZooMedia, "", false}}, {hidden}, Mixes::none, true, {}}), kZooMedia, kZooFeatures);
  for (int i = 0; i <= kTaps; ++i) {
    UnitDecl unit{"block." + std::to_string(i), {hidden}, {hidden}, Mixes::attention, true, {}};
    if (i < kTaps) unit.outputs.push_back({deep(i), kZooFeatures, "", false});
    if (i == kTaps) unit.outputs = {features};
    const Declarer b = d.unit(unit);
    norms_.emplace_back(b.child("norm"), kZooFeatures);
    SelfAttentionOptions attention;
    attention.width = kZooFeatures;
    attention.heads = 2;
    attention.rotary_theta = 30;
    attentions_.emplace_back(b.child("attention"), attention);
    drops_.push_back(b.site("drop"));
  }
}

DeepEncoder::~DeepEncoder() = default;

void DeepEncoder::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) return s.set("hidden", (*embed_)(s["media"], ctx));
  const Tensor& x = s["hidden"];
  const int i = unit - 1;
  const size_t at = static_cast<size_t>(i);
  const Tensor y = x + ctx.dropout(attentions_[at](norms_[at](x, ctx), ctx), options_.dropout, drops_[at]);
  if (i == kTaps) return s.set("features", y);
  s.set(deep(i), y.tanh());
  s.set("hidden", y);
}

ItemMeta DeepEncoder::measure(const MediaInfo& info) const {
  const int64_t n = flat_tokens(info);
  return {n, n, static_cast<double>(n * n), {}};
}

ItemLayout DeepEncoder::layout(const ItemMeta& meta) const {
  ItemLayout layout = whole_item(meta.tokens);
  for (int64_t row = 0; row < meta.tokens; ++row) layout.permutation.push_back(meta.tokens - 1 - row);
  layout.partitions[""].positions = layout.permutation;
  return layout;
}

Tensor DeepEncoder::prepare(const Media& media, const Philox&) const { return media.data; }

DeepConnector::DeepConnector(const Declarer& d) {
  const StreamDecl features{"features", kZooFeatures, "", false}, out{"embeddings", kZooWidth, "slots", false};
  mlp_ = std::make_unique<GeluMlp>(d.unit({"mlp", {features}, {out}, Mixes::none, true, {}}),
                                   GeluMlpOptions{kZooFeatures, 10, kZooWidth, true, Gelu::exact});
  for (int i = 0; i < kTaps; ++i) {
    const StreamDecl in{deep(i), kZooFeatures, "", false}, rows{tap(i), kZooWidth, "slots", false};
    taps_.emplace_back(d.unit({tap(i), {in}, {rows}, Mixes::none, true, {}}), kZooFeatures, kZooWidth);
  }
}

DeepConnector::~DeepConnector() = default;

void DeepConnector::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) return s.set("embeddings", (*mlp_)(s["features"], ctx));
  s.set(tap(unit - 1), taps_[static_cast<size_t>(unit) - 1](s[deep(unit - 1)], ctx));
}

std::vector<BridgeTarget> DeepConnector::targets(const BridgeTarget& usual) const {
  std::vector<BridgeTarget> out{usual};
  for (int i = 0; i < kTaps; ++i) out.push_back({usual.stream, usual.unit + 1 + i, BridgeMode::add, tap(i)});
  return out;
}

}  // namespace loom::test
