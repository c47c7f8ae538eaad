#include "backbones/llama/backbone.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace loom::llama {
namespace {

StreamDecl stream(std::string name, int64_t width, bool optional = false) {
  StreamDecl decl;
  decl.name = std::move(name);
  decl.width = width;
  decl.optional = optional;
  return decl;
}

UnitDecl embed_unit(const Config& c) {
  UnitDecl decl;
  decl.name = "embed";
  decl.backward_reads_weights = false;
  decl.inputs = {stream("tokens", 0)};
  decl.outputs = {stream("hidden", c.width)};
  return decl;
}

UnitDecl block_unit(const Config& c, int64_t i) {
  UnitDecl decl;
  decl.name = concat("blocks.", i);
  decl.inputs = {stream("hidden", c.width)};
  decl.outputs = {stream("hidden", c.width)};
  decl.mixes = Mixes::attention;
  return decl;
}

UnitDecl head_unit(const Config& c) {
  UnitDecl decl;
  decl.name = "head";
  decl.inputs = {stream("hidden", c.width), stream("loss_rows", 0), stream("targets", 0, true)};
  decl.outputs = {stream("logprob", 0, true), stream("correct", 0, true), stream("logits", c.vocab, true)};
  return decl;
}

SelfAttentionOptions attention_options(const Config& c) {
  SelfAttentionOptions o;
  o.width = c.width;
  o.heads = c.heads;
  o.kv_heads = c.kv_heads;
  o.head_dim = c.head_dim;
  o.causal = true;
  o.qkv_bias = c.qkv_bias;
  o.out_bias = c.out_bias;
  o.qk_norm = c.qk_norm;
  o.norm_eps = c.norm_eps;
  o.rotary_theta = c.rope_theta;
  return o;
}

std::vector<Block> make_blocks(const Declarer& d, const Config& c) {
  std::vector<Block> blocks;
  blocks.reserve(c.depth);
  for (int64_t i = 0; i < c.depth; ++i) blocks.emplace_back(d.unit(block_unit(c, i)), c);
  return blocks;
}

}  // namespace

Block::Block(const Declarer& d, const Config& config)
    : attention_norm_(d.child("attention_norm"), config.width, config.norm_eps),
      attention_(d.child("attention"), attention_options(config)),
      mlp_norm_(d.child("mlp_norm"), config.width, config.norm_eps),
      mlp_(d.child("mlp"), config.width, config.ffn, config.mlp_bias),
      dropout_(config.dropout),
      attention_dropout_(d.site("attention_dropout")),
      mlp_dropout_(d.site("mlp_dropout")) {}

Tensor Block::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  const auto [x0_TW, n1_TW] = attention_norm_.add(x_TW, Tensor(), ctx);
  const Tensor attended_TW = ctx.dropout(attention_(n1_TW, ctx), dropout_, attention_dropout_);
  const auto [x1_TW, n2_TW] = mlp_norm_.add(x0_TW, attended_TW, ctx);
  if (dropout_ == 0 || !ctx.training()) return mlp_.add(n2_TW, x1_TW, ctx);
  return x1_TW + ctx.dropout(mlp_(n2_TW, ctx), dropout_, mlp_dropout_);
}

Head::Head(const Declarer& d, const Config& config, Param embedding)
    : norm_(d.child("norm"), config.width, config.norm_eps),
      output_(config.tied ? LogProbHead(d, embedding) : LogProbHead(d, config.vocab, config.width)) {}

void Head::operator()(Streams& s, UnitContext& ctx) const {
  const Tensor rows_NW = norm_(s["hidden"].index_select(0, s["loss_rows"]), ctx);
  if (s.has("targets") && ctx.phase() == Phase::evaluate) {
    const TargetScores scores = output_.score(rows_NW, s["targets"], ctx);
    s.set("logprob", scores.log_probs);
    s.set("correct", scores.correct);
  } else if (s.has("targets")) {
    s.set("logprob", output_.log_probs(rows_NW, s["targets"], ctx));
  } else {
    s.set("logits", output_.logits(rows_NW, ctx));
  }
}

LlamaBackbone::LlamaBackbone(const Config& config, const Declarer& d)
    : config_(config),
      embed_(d.unit(embed_unit(config)), config.vocab, config.width),
      blocks_(make_blocks(d, config)),
      head_(d.unit(head_unit(config)), config, embed_.weight()) {}

// Blocks alone: how many rows the head sees is not known of a sample.
double LlamaBackbone::cost(int64_t tokens) const {
  const auto n = static_cast<double>(tokens), width = static_cast<double>(config_.width);
  const auto queries = static_cast<double>(config_.heads * config_.head_dim);
  const auto keys = static_cast<double>(config_.kv_heads * config_.head_dim);
  const double products = 2 * width * (2 * queries + 2 * keys + 3 * static_cast<double>(config_.ffn));
  const double pairs = n * (n + 1) / 2;  // causal
  return static_cast<double>(config_.depth) * (n * products + 4 * queries * pairs);
}

void LlamaBackbone::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) {
    s.set("hidden", embed_(s["tokens"], ctx));
  } else if (unit <= config_.depth) {
    s.set("hidden", blocks_[unit - 1](s["hidden"], ctx));
  } else {
    head_(s, ctx);
  }
}

}  // namespace loom::llama
