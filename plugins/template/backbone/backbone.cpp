#include "backbone.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace new_plugin {

Block::Block(const Declarer& d, const Config& config)
    : norm1_(d.child("norm1"), config.width),
      norm2_(d.child("norm2"), config.width),
      attention_(d.child("attention"), {.width = config.width,
                                        .heads = config.heads,
                                        .kv_heads = config.kv_heads,
                                        .causal = true,
                                        .qkv_bias = false,
                                        .out_bias = false,
                                        .rotary_theta = 10000}),
      mlp_(d.child("mlp"), config.width, config.ffn) {}

Tensor Block::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  const Tensor y_TW = x_TW + attention_(norm1_(x_TW, ctx), ctx);
  return y_TW + mlp_(norm2_(y_TW, ctx), ctx);
}

// Units: embed ("tokens" -> "hidden"), blocks, head ("hidden" -> "logprob" of the targets, or "logits" without
// targets).
NewPluginBackbone::NewPluginBackbone(const Config& config, int64_t vocab, const Declarer& d)
    : config_(config), vocab_(vocab) {
  const int64_t width = config.width;
  const Declarer embed = d.unit({.name = "embed", .inputs = {{"tokens", 0}}, .outputs = {{"hidden", width}}});
  embed_.emplace_back(embed, vocab, width);
  for (int64_t i = 0; i < config.depth; ++i) {
    loom::UnitDecl block{.name = loom::concat("blocks.", i),
                         .inputs = {{"hidden", width}},
                         .outputs = {{"hidden", width}},
                         .mixes = loom::Mixes::attention};
    blocks_.emplace_back(d.unit(std::move(block)), config);
  }
  const Declarer head = d.unit({.name = "head",
                                .inputs = {{"hidden", width}, {"loss_rows", 0}, {"targets", 0, "", true}},
                                .outputs = {{"logprob", 0, "", true}, {"logits", vocab, "", true}}});
  norm_.emplace_back(head.child("norm"), width);
  head_.emplace_back(head, embed_.front().weight());
}

void NewPluginBackbone::run(int unit, loom::Streams& s, UnitContext& ctx) {
  if (unit == 0) {
    s.set("hidden", embed_.front()(s["tokens"], ctx));
  } else if (unit <= config_.depth) {
    s.set("hidden", blocks_[static_cast<size_t>(unit - 1)](s["hidden"], ctx));
  } else {
    const Tensor x_NW = norm_.front()(s["hidden"].index_select(0, s["loss_rows"]), ctx);
    if (s.has("targets")) {
      s.set("logprob", head_.front().log_probs(x_NW, s["targets"], ctx));
    } else {
      s.set("logits", head_.front().logits(x_NW, ctx));
    }
  }
}

}  // namespace new_plugin
