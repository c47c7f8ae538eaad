#include "encoders/vit/encoder.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "encoders/vit/picture.h"

namespace loom::vit {
namespace {

UnitDecl unit(std::string name, StreamDecl in, StreamDecl out, Mixes mixes) {
  UnitDecl decl;
  decl.name = std::move(name);
  decl.inputs = {std::move(in)};
  decl.outputs = {std::move(out)};
  decl.mixes = mixes;
  return decl;
}

StreamDecl stream(std::string name, int64_t width) {
  StreamDecl decl;
  decl.name = std::move(name);
  decl.width = width;
  return decl;
}

SelfAttentionOptions attention_options(const Config& c) {
  SelfAttentionOptions o;
  o.width = c.width;
  o.heads = c.heads;
  return o;
}

GeluMlpOptions mlp_options(const Config& c) {
  GeluMlpOptions o;
  o.in = c.width;
  o.hidden = c.hidden;
  o.gelu = c.tanh_gelu ? Gelu::tanh : Gelu::exact;
  return o;
}

std::vector<Block> make_blocks(const Declarer& d, const Config& c) {
  std::vector<Block> blocks;
  blocks.reserve(c.depth);
  for (int64_t i = 0; i < c.depth; ++i) {
    const StreamDecl hidden = stream("hidden", c.width);
    blocks.emplace_back(d.unit(unit(concat("blocks.", i), hidden, hidden, Mixes::attention)), c);
  }
  return blocks;
}

}  // namespace

Block::Block(const Declarer& d, const Config& config)
    : norm1_(d.child("norm1"), config.width, config.norm_eps),
      attention_(d.child("attention"), attention_options(config)),
      norm2_(d.child("norm2"), config.width, config.norm_eps),
      mlp_(d.child("mlp"), mlp_options(config)),
      dropout_(config.dropout),
      attention_dropout_(d.site("attention_dropout")),
      mlp_dropout_(d.site("mlp_dropout")) {}

Tensor Block::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  const auto [x0_TW, n1_TW] = norm1_.add(x_TW, Tensor(), ctx);
  const Tensor attended_TW = ctx.dropout(attention_(n1_TW, ctx), dropout_, attention_dropout_);
  const auto [x1_TW, n2_TW] = norm2_.add(x0_TW, attended_TW, ctx);
  if (dropout_ == 0 || !ctx.training()) return mlp_.add(n2_TW, x1_TW, ctx);
  return x1_TW + ctx.dropout(mlp_(n2_TW, ctx), dropout_, mlp_dropout_);
}

VitEncoder::Embed::Embed(const Declarer& d, const Config& config)
    : patch(d.child("patch"), config.patch_width(), config.width),
      position(d.child("position"), {config.side(), config.side()}, config.width),
      dropout(d.site("dropout")) {}

VitEncoder::VitEncoder(const Config& config, const Declarer& d)
    : config_(config),
      embed_(d.unit(unit("embed", stream("media", config.patch_width()), stream("hidden", config.width), Mixes::none)),
             config),
      blocks_(make_blocks(d, config)),
      norm_(d.unit(unit("norm", stream("hidden", config.width), stream("features", config.width), Mixes::none)),
            config.width, config.norm_eps) {}

void VitEncoder::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) {
    s.set("hidden", ctx.dropout(embed_.position(embed_.patch(s["media"], ctx), ctx), config_.dropout, embed_.dropout));
  } else if (unit <= config_.depth) {
    s.set("hidden", blocks_[unit - 1](s["hidden"], ctx));
  } else {
    s.set("features", norm_(s["hidden"], ctx));
  }
}

ItemMeta VitEncoder::measure(const MediaInfo& info) const {
  LOOM_CHECK_USER(info.frames == 1, "vit: a picture has one frame, found ", info.frames);
  LOOM_CHECK_USER(info.height > 0 && info.width > 0, "vit: a picture of ", info.width, "x", info.height, " pixels");
  const bool converts = (info.channels == 1 && config_.channels == 3) || (info.channels == 3 && config_.channels == 1);
  LOOM_CHECK_USER(info.channels == config_.channels || converts, "vit: expected ", config_.channels,
                  " channels, found ", info.channels);
  const Size size = fitted_size(info.height, info.width, config_);
  ItemMeta meta;
  meta.grid = {size.height / config_.patch, size.width / config_.patch};
  meta.tokens = meta.outputs = meta.grid[0] * meta.grid[1];
  const auto tokens = static_cast<double>(meta.tokens), width = static_cast<double>(config_.width);
  const double block =
      2 * tokens * width * (4 * width + 2 * static_cast<double>(config_.hidden)) + 4 * tokens * tokens * width;
  meta.cost =
      static_cast<double>(config_.depth) * block + 2 * tokens * width * static_cast<double>(config_.patch_width());
  return meta;
}

ItemLayout VitEncoder::layout(const ItemMeta& meta) const {
  ItemLayout layout = whole_item(meta.tokens);
  if (config_.fit != Fit::native) return layout;  // the rows are the table's rows
  ItemPartition& rows = layout.partitions.at("");
  rows.position_axes = 2;
  rows.positions.reserve(static_cast<size_t>(2 * meta.tokens));
  for (int64_t y = 0; y < meta.grid[0]; ++y) {
    for (int64_t x = 0; x < meta.grid[1]; ++x) rows.positions.insert(rows.positions.end(), {y, x});
  }
  return layout;
}

Tensor VitEncoder::prepare(const Media& media, const Philox& /*random*/) const {
  return to_patches(fit_picture(media.data[0], config_), config_);
}

Tensor VitEncoder::show(const Tensor& rows, const ItemMeta& meta) const {
  const Size size{meta.grid[0] * config_.patch, meta.grid[1] * config_.patch};
  return from_patches(rows, size, config_).unsqueeze(0);
}

}  // namespace loom::vit
