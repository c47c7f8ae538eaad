#include "core/nn/self_attention.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/nn/context.h"

namespace loom {
namespace {

SelfAttentionOptions complete(SelfAttentionOptions o) {
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.head_dim == 0) {
    if (o.width % o.heads != 0)
      throw PluginError(concat("attention: width ", o.width, " does not divide into ", o.heads, " heads"));
    o.head_dim = o.width / o.heads;
  }
  if (o.heads % o.kv_heads != 0) {
    throw PluginError(concat("attention: ", o.heads, " heads cannot share ", o.kv_heads, " key/value heads"));
  }
  return o;
}

LinearOptions qkv_options(const SelfAttentionOptions& o) {
  LinearOptions options;
  options.bias = o.qkv_bias;
  options.split = Split::column;
  options.block = o.head_dim;
  options.partition = o.partition;
  // Heads stay with their KV group.
  options.parts = {{"q", o.heads * o.head_dim, Split::column, o.heads / o.kv_heads * o.head_dim},
                   {"k", o.kv_heads * o.head_dim, Split::column, o.head_dim},
                   {"v", o.kv_heads * o.head_dim, Split::column, o.head_dim}};
  return options;
}

Tensor normed_heads(const RmsNorm& norm, const Tensor& x, int64_t head_dim, UnitContext& ctx) {
  return norm(x.reshape({x.size(0), -1, head_dim}), ctx).reshape(x.sizes());
}

}  // namespace

SelfAttention::SelfAttention(const Declarer& d, SelfAttentionOptions options)
    : options_(complete(std::move(options))),
      qkv_(d.child("qkv"), options_.width, (options_.heads + 2 * options_.kv_heads) * options_.head_dim,
           qkv_options(options_)),
      out_(d.child("out"), options_.heads * options_.head_dim, options_.width,
           {.bias = options_.out_bias,
            .split = Split::row,
            .block = options_.heads / options_.kv_heads * options_.head_dim,
            .partition = options_.partition}) {
  d.attends({options_.heads, options_.kv_heads, options_.head_dim});
  if (options_.qk_norm) {
    q_norm_.emplace(d.child("q_norm"), options_.head_dim, options_.norm_eps);
    k_norm_.emplace(d.child("k_norm"), options_.head_dim, options_.norm_eps);
  }
  if (options_.rotary_theta > 0) rotary_.emplace(options_.head_dim, options_.rotary_theta, options_.partition);
}

Tensor SelfAttention::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  AttentionSpec spec;
  spec.heads = options_.heads;
  spec.kv_heads = options_.kv_heads;
  spec.head_dim = options_.head_dim;
  spec.causal = options_.causal;
  spec.window = options_.window;
  spec.partition = options_.partition;
  const int64_t kv_width = ctx.share(options_.kv_heads).count() * options_.head_dim;
  const int64_t q_width = options_.heads / options_.kv_heads * kv_width;
  const Tensor fused = qkv_(x_TW, ctx);
  Attention attention = ctx.attention(spec);
  if (!options_.qk_norm && attention.fuses(fused)) {
    return out_(attention.fused(fused, rotary_ ? rotary_->turner(fused, ctx) : nullptr), ctx);
  }
  const std::vector<Tensor> qkv = fused.split_with_sizes({q_width, kv_width, kv_width}, 1);
  const auto finished = [&](Tensor x, const std::optional<RmsNorm>& norm) {
    if (norm) x = normed_heads(*norm, x, options_.head_dim, ctx);
    return rotary_ ? (*rotary_)(x, ctx) : x;
  };
  // Each is on its way to other ranks while the next is made.
  attention.value(qkv[2]);
  attention.key(finished(qkv[1], k_norm_));
  attention.query(finished(qkv[0], q_norm_));
  return out_(attention.output(), ctx);
}

}  // namespace loom
