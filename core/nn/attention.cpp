// From a layer's request to ranges of rows, on one rank or several, with or without a KV cache. The arithmetic is in
// varlen_attention, the exchange in split_attention.
#include "core/nn/attention.h"

#include <cmath>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/nn/context.h"
#include "core/nn/flops.h"
#include "core/nn/ops/pieces.h"
#include "core/nn/split_attention.h"
#include "core/nn/tensor_parallel.h"

namespace loom {
namespace {

VarlenShape shape_of(const AttentionSpec& spec) {
  VarlenShape shape;
  shape.heads = spec.heads;
  shape.kv_heads = spec.kv_heads;
  shape.head_dim = spec.head_dim;
  shape.causal = spec.causal;
  shape.scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  shape.window = spec.window;
  return shape;
}

const char* name_of(AttentionInput input) {
  return input == AttentionInput::query ? "q" : input == AttentionInput::key ? "k" : "v";
}

}  // namespace

Attention::Attention(UnitContext& ctx, AttentionSpec spec) : ctx_(&ctx), spec_(std::move(spec)) {}

const AttentionPlan& Attention::plan(const Tensor& x, std::optional<AttentionInput> input) {
  if (plan_ == nullptr) {
    share_ = spec_;
    grouped_ = ctx_->take_share(share_, x.size(-1), input);
    plan_ = ctx_->attention_plan(share_, grouped_);
  }
  return *plan_;
}

void Attention::take(AttentionInput input, const Tensor& x) {
  LOOM_CHECK(x.defined(), "attention: ", name_of(input), " is not a tensor");
  of(input) = x;
  if (ctx_->cached(spec_)) return;
  const AttentionPlan& plan = this->plan(x, input);
  ctx_->check_attention(share_, grouped_, input, x);
  if (plan.alone() || !plan.tiles.empty() || ctx_->state_.recomputing) return;
  if (moves_ == nullptr)
    moves_ = std::make_shared<HeadMoves>(*ctx_->state_.comm, ctx_->what("attention"), plan_, spec_.head_dim);
  of(input) = x.contiguous();
  moves_->start(input, of(input));
}

Tensor Attention::output() {
  LOOM_CHECK(q_.defined() && k_.defined() && v_.defined(), "attention needs query, key and value before output");
  return ctx_->cached(spec_) ? ctx_->cached_attention(spec_, q_, k_, v_) : ctx_->run_attention(*this);
}

bool Attention::fuses(const Tensor& qkv) {
  return spec_.kv_partition == "=" && !ctx_->cached(spec_) && backend_of(qkv) == Backend::cpu &&
         (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kDouble) && qkv.dim() == 2 &&
         qkv.is_contiguous() && plan(qkv, std::nullopt).alone();
}

Tensor Attention::fused(const Tensor& qkv, std::function<void(const Tensor& heads, bool inverse)> turn) {
  LOOM_CHECK(fuses(qkv), "attention: fused() without fuses()");
  const AttentionSpec& spec = share_;
  const int64_t rows = ctx_->attended(spec.partition, grouped_).rows();
  const int64_t columns = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
  if (qkv.size(0) != rows || qkv.size(1) != columns)
    throw PluginError(concat("attention: qkv ", qkv.sizes(), "; expected [", rows, ", ", columns, "]"));
  ContextState& state = ctx_->state_;
  if (FlopSink* sink = flop_sink(); sink != nullptr && !state.recomputing) sink->attends(spec);
  const bool keeps = state.kept != nullptr && !state.recomputing, reuses = state.kept != nullptr && !keeps;
  const VarlenResult* kept = reuses ? &UnitContext::next(state.kept->attention, ctx_->next_kept_attention_) : nullptr;
  VarlenResult computed;
  Tensor out = fused_attention(qkv, std::move(turn), plan_->local, shape_of(spec), kept, keeps ? &computed : nullptr);
  if (keeps) state.kept->attention.push_back(std::move(computed));
  return out;
}

Attention UnitContext::attention(AttentionSpec spec) {
  need(Mixes::attention, "attention");
  if (spec.heads <= 0 || spec.kv_heads <= 0 || spec.heads % spec.kv_heads != 0) {
    throw PluginError(concat("attention: ", spec.heads, " heads cannot share ", spec.kv_heads, " key/value heads"));
  }
  return Attention(*this, std::move(spec));
}

bool UnitContext::take_share(AttentionSpec& spec, int64_t columns, std::optional<AttentionInput> input) const {
  if (tensor_ranks() == 1) return false;
  const int64_t kv_heads = share(spec.kv_heads).count(), heads = kv_heads * (spec.heads / spec.kv_heads);
  const int64_t share_heads = !input.has_value()                ? heads + 2 * kv_heads
                              : *input == AttentionInput::query ? heads
                                                                : kv_heads;
  if (columns != share_heads * spec.head_dim) return false;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  return true;
}

bool UnitContext::cached(const AttentionSpec& spec) const {
  return state_.cache != nullptr && spec.causal && spec.kv_partition == "=";
}

const Segments& UnitContext::attended(const std::string& partition, bool grouped) const {
  return grouped ? group(partition).segments : segments(partition);
}

std::shared_ptr<const AttentionPlan> UnitContext::attention_plan(const AttentionSpec& spec, bool grouped) const {
  // A window over keys that come later has no meaning for a part of the keys.
  const int tile_queries = spec.window > 0 && !spec.causal ? kByHeads : state_.tile_queries;
  std::shared_ptr<const AttentionPlan> made;
  std::shared_ptr<const AttentionPlan>* plan = &made;
  if (state_.attention_plans != nullptr) {
    const std::string key = concat(spec.partition, '\n', spec.kv_partition, '\n', spec.heads, '/', spec.kv_heads, '/',
                                   tile_queries, grouped ? " of the group" : "");
    plan = &(*state_.attention_plans)[key];
  }
  if (*plan == nullptr) {
    const Segments& queries = attended(spec.partition, grouped);
    const Segments& keys = spec.kv_partition == "=" ? queries : attended(spec.kv_partition, grouped);
    if (queries.splits.empty() && keys.splits.empty() && queries.count() != keys.count()) {
      throw PluginError(concat("attention: partition '", spec.partition, "' has ", queries.count(), " segments, '",
                               spec.kv_partition, "' has ", keys.count()));
    }
    *plan =
        std::make_shared<AttentionPlan>(plan_attention(queries, keys, spec.heads, spec.kv_heads, rank(), tile_queries));
  }
  return *plan;
}

void UnitContext::check_attention(const AttentionSpec& spec, bool grouped, AttentionInput input,
                                  const Tensor& x) const {
  const bool query = input == AttentionInput::query;
  const std::string& partition = query || spec.kv_partition == "=" ? spec.partition : spec.kv_partition;
  const int64_t rows = attended(partition, grouped).rows(),
                columns = (query ? spec.heads : spec.kv_heads) * spec.head_dim;
  if (x.dim() == 2 && x.size(0) == rows && x.size(1) == columns) return;
  throw PluginError(concat("attention: ", name_of(input), " ", x.sizes(), "; expected [", rows, ", ", columns, "]"));
}

Tensor UnitContext::run_attention(Attention& of) {
  const AttentionSpec& spec = of.share_;
  const std::shared_ptr<const AttentionPlan>& plan = of.plan_;
  const Tensor &q = of.q_, &k = of.k_, &v = of.v_;
  const VarlenShape shape = shape_of(spec);
  if (FlopSink* sink = flop_sink(); sink != nullptr && !state_.recomputing) sink->attends(spec);
  const bool keeps = state_.kept != nullptr && !state_.recomputing, reuses = state_.kept != nullptr && !keeps;
  if (plan->alone()) {
    const VarlenResult* kept = reuses ? &next(state_.kept->attention, next_kept_attention_) : nullptr;
    VarlenResult computed;
    Tensor out = varlen_attention(q, k, v, plan->local, shape, kept, keeps ? &computed : nullptr);
    if (keeps) state_.kept->attention.push_back(std::move(computed));
    return out;
  }
  std::shared_ptr<const SplitAttention> computed;
  SplitCall call{*state_.comm, what("attention"), plan, shape, std::move(of.moves_)};
  if (reuses) call.kept = next(state_.kept->split_attention, next_kept_split_);
  if (keeps) call.computed = &computed;
  if (state_.counters != nullptr && !reuses) state_.counters->split_segments += plan->split_segments;
  Tensor out = split_attention(call, q, k, v);
  if (keeps) state_.kept->split_attention.push_back(std::move(computed));
  return out;
}

Tensor UnitContext::cached_attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Segments& queries = segments(spec.partition);
  KvCache& cache = *state_.cache;
  LOOM_CHECK(queries.count() == cache.sequences(), queries.count(), " segments and ", cache.sequences(),
             " cached sequences");
  KvCache::Slab& slab = cache.slab((*state_.cache_site)++, k.size(1), k);
  std::vector<AttentionRange> out;
  for (int64_t s = 0; s < queries.count(); ++s) {
    const int64_t held = cache.lengths()[s], fresh = queries.length(s), begin = s * cache.capacity();
    LOOM_CHECK(held + fresh <= cache.capacity(), "KV cache of ", cache.capacity(), " rows, ", held + fresh, " needed");
    slab.keys.narrow(0, begin + held, fresh).copy_(k.narrow(0, queries.offsets[s], fresh));
    slab.values.narrow(0, begin + held, fresh).copy_(v.narrow(0, queries.offsets[s], fresh));
    out.push_back({queries.offsets[s], fresh, begin, held + fresh});
  }
  return varlen_attention_forward(q, slab.keys, slab.values, out, shape_of(spec)).output;
}

}  // namespace loom
