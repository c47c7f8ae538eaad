#include "tests/loopback/zoo/pooled_encoder.h"

#include <ATen/ATen.h>

namespace loom::test {

PooledEncoder::PooledEncoder(const Declarer& d, const ZooOptions& options, Pool pool) : options_(options), pool_(pool) {
  const StreamDecl rows{"rows", kZooFeatures, "with_class", false};
  const Declarer e = d.unit({"embed", {{"media", kZooMedia, "", false}}, {rows}, Mixes::none, true, {}});
  embed_ = std::make_unique<Linear>(e, kZooMedia, kZooFeatures);
  class_ = e.param("class", {1, kZooFeatures}, Init::normal(0.5));
  const Declarer b = d.unit({"block", {rows}, {rows}, Mixes::attention, true, {}});
  norm_ = std::make_unique<LayerNorm>(b.child("norm"), kZooFeatures);
  SelfAttentionOptions attention;
  attention.width = kZooFeatures;
  attention.heads = 4;
  attention.kv_heads = 2;
  attention.partition = "with_class";
  attention_ = std::make_unique<SelfAttention>(b.child("attention"), attention);
  drop_ = b.site("drop");
  const StreamDecl features{"features", kZooFeatures, "pooled", false};
  const Declarer p =
      d.unit({"pool", {rows}, {features}, pool == Pool::mean ? Mixes::attention : Mixes::none, true, {}});
  last_ = std::make_unique<LayerNorm>(p.child("norm"), kZooFeatures);
  out_ = std::make_unique<Linear>(p.child("out"), kZooFeatures, kZooFeatures);
}

PooledEncoder::~PooledEncoder() = default;

// The class row stands before row 0 of an item, which lies here when the segment starts at row 0.
Tensor PooledEncoder::with_class_rows(const Tensor& x, UnitContext& ctx) const {
  const Segments& out = ctx.segments("with_class");
  std::vector<Tensor> parts;
  int64_t row = 0;
  for (int64_t s = 0; s < out.count(); ++s) {
    const bool first = out.keys[s].first_row == 0 && out.length(s) > 0;
    if (first) parts.push_back(ctx[class_]);
    const int64_t rows = out.length(s) - (first ? 1 : 0);
    parts.push_back(x.narrow(0, row, rows));
    row += rows;
  }
  return at::cat(parts);
}

void PooledEncoder::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) return s.set("rows", with_class_rows((*embed_)(s["media"], ctx), ctx));
  const Tensor& x = s["rows"];
  if (unit == 1) {
    const Tensor y = ctx.dropout((*attention_)((*norm_)(x, ctx), ctx), options_.dropout, drop_, "with_class");
    return s.set("rows", x + y);
  }
  if (pool_ == Pool::mean) {
    const Tensor mean = ctx.segment_mean((*last_)(x, ctx).tanh(), "with_class", "pooled");
    return s.set("features", (*out_)(mean, ctx));
  }
  const Segments& segments = ctx.segments("with_class");
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < segments.count(); ++i) {
    if (segments.keys[i].first_row == 0 && segments.length(i) > 0) rows.push_back(segments.offsets[i]);
  }
  const Tensor picked = x.index_select(0, at::tensor(at::IntArrayRef(rows), at::kLong));
  s.set("features", (*out_)((*last_)(picked, ctx), ctx));
}

ItemMeta PooledEncoder::measure(const MediaInfo& info) const {
  const int64_t n = flat_tokens(info);
  return {n, 1, static_cast<double>(n * n), {}};
}

ItemLayout PooledEncoder::layout(const ItemMeta& meta) const {
  ItemLayout layout = whole_item(meta.tokens);
  ItemPartition &rows = layout.partitions["with_class"], &pooled = layout.partitions["pooled"];
  rows.lengths = {meta.tokens + 1};
  pooled.lengths = {1};
  for (int64_t row = 1; row < meta.tokens; ++row) {
    layout.cuts.push_back(row);
    rows.cut_rows.push_back(row + 1);
    pooled.cut_rows.push_back(1);  // the pooled row lies with the item's first piece
  }
  return layout;
}

Tensor PooledEncoder::prepare(const Media& media, const Philox&) const { return media.data; }

}  // namespace loom::test
