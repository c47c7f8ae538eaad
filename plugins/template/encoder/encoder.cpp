#include "encoder.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace new_plugin {

Block::Block(const Declarer& d, const Config& config)
    : dropout_(config.dropout),
      norm1_(d.child("norm1"), config.width),
      norm2_(d.child("norm2"), config.width),
      attention_(d.child("attention"), {.width = config.width, .heads = config.heads, .rotary_theta = 10000}),
      mlp_(d.child("mlp"), {.in = config.width, .hidden = 4 * config.width}),
      drop1_(d.site("drop1")),
      drop2_(d.site("drop2")) {}

Tensor Block::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  const Tensor y_TW = x_TW + ctx.dropout(attention_(norm1_(x_TW, ctx), ctx), dropout_, drop1_);
  return y_TW + ctx.dropout(mlp_(norm2_(y_TW, ctx), ctx), dropout_, drop2_);
}

// Declares what the encoder is made of: units, and the parameters of each. Nothing is allocated here.
NewPluginEncoder::NewPluginEncoder(const Config& config, const Declarer& d) : config_(config) {
  const int64_t width = config.width;
  embed_.emplace_back(
      d.unit({.name = "embed", .inputs = {{"media", media_width()}}, .outputs = {{"hidden", width}}}).child("patch"),
      media_width(), width);
  for (int64_t i = 0; i < config.depth; ++i) {
    loom::UnitDecl block{.name = loom::concat("blocks.", i),
                         .inputs = {{"hidden", width}},
                         .outputs = {{"hidden", width}},
                         .mixes = loom::Mixes::attention};
    blocks_.emplace_back(d.unit(std::move(block)), config);
  }
  norm_.emplace_back(
      d.unit({.name = "head", .inputs = {{"hidden", width}}, .outputs = {{"features", width}}}).child("norm"), width);
}

// 1 of 3. From the size alone, without touching the data: how many tokens this item becomes (and what it costs, for
// balancing).
loom::ItemMeta NewPluginEncoder::measure(const loom::MediaInfo& info) const {
  const int64_t rows = info.frames * info.height;
  LOOM_CHECK_USER(info.width * info.channels == config_.channels, "new_plugin: a row has ", info.width * info.channels,
                  " numbers, the encoder takes ", config_.channels, " (model.encoders.new_plugin.channels)");
  LOOM_CHECK_USER(rows > 0 && rows % config_.patch == 0, "new_plugin: ", rows, " rows do not divide into patches of ",
                  config_.patch);
  loom::ItemMeta meta;
  meta.tokens = rows / config_.patch;
  meta.outputs = meta.tokens;
  const double tokens = static_cast<double>(meta.tokens), width = static_cast<double>(config_.width);
  meta.cost = static_cast<double>(config_.depth) * tokens * width * (24 * width + 4 * tokens);
  return meta;
}

// 2 of 3. From decoded data to [tokens, media_width()] numbers around zero. Runs on any thread; `random` is for
// augmentation.
Tensor NewPluginEncoder::prepare(const loom::Media& media, const loom::Philox&) const {
  Tensor values = media.data.to(at::kFloat);
  if (media.data.scalar_type() == at::kByte) values = values / 127.5 - 1.0;
  return values.reshape({-1, media_width()});
}

// 3 of 3. The computation, unit by unit, over all items at once: rows of different items never see each other.
void NewPluginEncoder::run(int unit, loom::Streams& s, UnitContext& ctx) {
  if (unit == 0) {
    s.set("hidden", embed_.front()(s["media"], ctx));
  } else if (unit <= config_.depth) {
    s.set("hidden", blocks_[static_cast<size_t>(unit - 1)](s["hidden"], ctx));
  } else {
    s.set("features", norm_.front()(s["hidden"], ctx));
  }
}

}  // namespace new_plugin
