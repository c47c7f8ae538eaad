#include "tests/loopback/zoo/conv_encoder.h"

#include <ATen/ATen.h>

namespace loom::test {

ConvEncoder::ConvEncoder(const Declarer& d, const ZooOptions& options) : options_(options) {
  const StreamDecl hidden{"hidden", kZooFeatures, "half", false};
  UnitDecl stem{"stem", {{"media", kZooMedia, "", false}}, {hidden}, Mixes::halo, true, {}};
  const Declarer s = d.unit(stem);
  first_ = std::make_unique<Linear>(s.child("first"), 4 * kZooMedia, kZooFeatures);
  second_ = std::make_unique<Linear>(s.child("second"), 3 * kZooFeatures, kZooFeatures);
  for (int i = 0; i < 2; ++i) {
    const StreamDecl out{i == 0 ? "hidden" : "features", kZooFeatures, "half", false};
    const Declarer b = d.unit({i == 0 ? "block.0" : "block.1", {hidden}, {out}, Mixes::attention, true, {}});
    norms_.emplace_back(b.child("norm"), kZooFeatures);
    SelfAttentionOptions attention;
    attention.width = kZooFeatures;
    attention.heads = 2;
    attention.rotary_theta = 50;
    attention.partition = "half";
    attentions_.emplace_back(b.child("attention"), attention);
    drops_.push_back(b.site("drop"));
  }
}

ConvEncoder::~ConvEncoder() = default;

void ConvEncoder::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) {
    const Tensor x = at::gelu((*first_)(ctx.halo(s["media"], 2, 1).flatten(1), ctx));
    return s.set("hidden", (*second_)(ctx.halo(x, 1, 1, 2).flatten(1), ctx));
  }
  const Tensor& x = s["hidden"];
  const size_t i = static_cast<size_t>(unit) - 1;
  const Tensor y = ctx.dropout(attentions_[i](norms_[i](x, ctx), ctx), options_.dropout, drops_[i], "half");
  s.set(unit == 1 ? "hidden" : "features", x + ctx.keep(y));
}

ItemMeta ConvEncoder::measure(const MediaInfo& info) const {
  const int64_t n = flat_tokens(info);
  return {n, (n + 1) / 2, static_cast<double>(n * n), {}};
}

ItemLayout ConvEncoder::layout(const ItemMeta& meta) const {
  ItemLayout layout = whole_item(meta.tokens);
  ItemPartition& half = layout.partitions["half"];
  half.lengths = {meta.outputs};
  for (int64_t row = 2; row < meta.tokens; row += 2) {
    layout.cuts.push_back(row);
    half.cut_rows.push_back(row / 2);
  }
  return layout;
}

Tensor ConvEncoder::prepare(const Media& media, const Philox&) const { return media.data; }

}  // namespace loom::test
