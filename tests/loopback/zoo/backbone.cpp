#include "tests/loopback/zoo/backbone.h"

#include <ATen/ATen.h>

namespace loom::test {
namespace {

constexpr int64_t kHeadDim = 4;
constexpr double kMomentum = 0.3;
const StreamDecl kHidden{"hidden", kZooWidth, "", false};

}  // namespace

ZooBackbone::ZooBackbone(const Declarer& d, const ZooOptions& options, const BackboneOptions& backbone)
    : options_(options), backbone_(backbone) {
  const Declarer e = d.unit({"embed", {{"tokens", 0, "", false}}, {kHidden}, Mixes::none, true, {}});
  embed_ = std::make_unique<Embedding>(e, kZooVocab, kZooWidth, Init::normal(0.5));
  units_.push_back({Kind::embed, 0});
  for (int i = 0; i < backbone_.blocks; ++i) {
    declare_block(d);
    if (i == 0 && backbone_.statistics) declare_statistics(d);
    if (i == 0 && backbone_.context) declare_cross(d);
  }
  const Declarer h = d.unit({"head",
                             {kHidden, {"loss_rows", 0, "", false}, {"targets", 0, "", true}},
                             {{"logprob", 0, "", true}, {"logits", kZooVocab, "", true}},
                             Mixes::none,
                             true,
                             {}});
  last_norm_.emplace(h.child("norm"), kZooWidth);
  head_ = backbone_.tied ? std::make_unique<LogProbHead>(h, embed_->weight())
                         : std::make_unique<LogProbHead>(h, kZooVocab, kZooWidth, Init::normal(0.5));
  units_.push_back({Kind::head, 0});
}

ZooBackbone::~ZooBackbone() = default;

void ZooBackbone::declare_block(const Declarer& d) {
  const size_t i = attentions_.size();
  const Declarer b = d.unit({"blocks." + std::to_string(i), {kHidden}, {kHidden}, Mixes::attention, true, {}});
  norms_.emplace_back(b.child("norm"), kZooWidth);
  mlp_norms_.emplace_back(b.child("mlp_norm"), kZooWidth);
  SelfAttentionOptions attention;
  attention.width = kZooWidth;
  attention.heads = backbone_.heads;
  attention.kv_heads = backbone_.kv_heads;
  attention.head_dim = kHeadDim;
  attention.causal = true;
  attention.window = i == 1 ? 6 : 0;
  attention.rotary_theta = 100;
  attention.qk_norm = backbone_.qk_norm;
  attentions_.emplace_back(b.child("attention"), attention);
  mlps_.emplace_back(b.child("mlp"), kZooWidth, 16);
  drops_.push_back(b.site("drop"));
  units_.push_back({Kind::block, i});
}

void ZooBackbone::declare_statistics(const Declarer& d) {
  const Declarer u = d.unit({"statistics", {kHidden}, {kHidden}, Mixes::none, true, {}});
  mean_ = u.state("mean", {kZooWidth}, Reduce::sum, Init::constant(0.1));
  count_ = u.state("count", {1}, Reduce::sum);
  largest_ = u.state("largest", {1}, Reduce::max, Init::ones());
  units_.push_back({Kind::statistics, 0});
}

void ZooBackbone::declare_cross(const Declarer& d) {
  const Declarer u =
      d.unit({"cross", {kHidden, {"context", kZooWidth, "context", true}}, {kHidden}, Mixes::attention, true, {}});
  cross_norm_.emplace(u.child("norm"), kZooWidth);
  // Without biases, so that a sample without context is left as it is.
  const LinearOptions plain{.bias = false};
  query_.emplace(u.child("query"), kZooWidth, backbone_.heads * kHeadDim, plain);
  key_.emplace(u.child("key"), kZooWidth, backbone_.kv_heads * kHeadDim, plain);
  value_.emplace(u.child("value"), kZooWidth, backbone_.kv_heads * kHeadDim, plain);
  cross_out_.emplace(u.child("out"), backbone_.heads * kHeadDim, kZooWidth, plain);
  units_.push_back({Kind::cross, 0});
}

Tensor ZooBackbone::block(size_t i, const Tensor& x, UnitContext& ctx) const {
  const Tensor a = attentions_[i](norms_[i](x, ctx), ctx);
  const Tensor y = x + ctx.dropout(a, options_.dropout, drops_[i]);
  const Tensor z = mlps_[i](mlp_norms_[i](y, ctx), ctx);
  if (options_.balance) {
    ctx.loss("balance", 0.1 * (z * z).sum(), Denominator::rows);
    ctx.loss("spread", 0.02 * (a * a).sum(), Denominator::samples);
  }
  return y + z;
}

// Rows are centred and scaled by what earlier steps saw.
Tensor ZooBackbone::statistics(const Tensor& x, UnitContext& ctx) const {
  const Tensor mean = ctx[mean_].to(x.scalar_type()), largest = ctx[largest_].to(x.scalar_type());
  if (ctx.training()) {
    const Tensor rows = x.detach().to(at::kDouble);
    ctx.contribute(mean_, rows.sum(0));
    ctx.contribute(count_, at::full({1}, static_cast<double>(x.size(0)), at::kDouble));
    ctx.contribute(largest_, rows.abs().max().reshape({1}));
  }
  return (x - mean) / (1 + largest);
}

void ZooBackbone::end_step(StateTable& states) {
  if (!backbone_.statistics) return;
  const double count = states.contribution(count_).item<double>();
  if (count == 0) return;
  const Tensor seen = states.contribution(mean_) / count;
  states.set(mean_, states.value(mean_) * (1 - kMomentum) + seen * kMomentum);
  states.set(count_, states.value(count_) + count);
  states.set(largest_, states.value(largest_) * (1 - kMomentum) + states.contribution(largest_) * kMomentum);
}

Tensor ZooBackbone::cross(const Streams& s, UnitContext& ctx) const {
  const Tensor& x = s["hidden"];
  if (!s.has("context")) return x;
  AttentionSpec spec;
  spec.heads = backbone_.heads;
  spec.kv_heads = backbone_.kv_heads;
  spec.head_dim = kHeadDim;
  spec.kv_partition = "context";
  Attention attention = ctx.attention(spec);
  attention.query((*query_)((*cross_norm_)(x, ctx), ctx));
  attention.key((*key_)(s["context"], ctx));
  attention.value((*value_)(s["context"], ctx));
  return x + (*cross_out_)(attention.output(), ctx);
}

void ZooBackbone::run(int unit, Streams& s, UnitContext& ctx) {
  const Unit& u = units_[static_cast<size_t>(unit)];
  if (u.kind == Kind::embed) return s.set("hidden", (*embed_)(s["tokens"], ctx));
  const Tensor& x = s["hidden"];
  if (u.kind == Kind::block) return s.set("hidden", block(u.block, x, ctx));
  if (u.kind == Kind::statistics) return s.set("hidden", statistics(x, ctx));
  if (u.kind == Kind::cross) return s.set("hidden", cross(s, ctx));
  const Tensor rows = (*last_norm_)(x.index_select(0, s["loss_rows"]), ctx);
  if (s.has("targets")) return s.set("logprob", head_->log_probs(rows, s["targets"], ctx));
  s.set("logits", head_->logits(rows, ctx));
}

}  // namespace loom::test
