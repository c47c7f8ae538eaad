// From a layer's request to ranges of rows, with or without a KV cache. The arithmetic is in varlen_attention.
#include "core/nn/attention.h"

#include <cmath>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/nn/context.h"

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

}  // namespace

Tensor Attention::output() {
  LOOM_CHECK(q_.defined() && k_.defined() && v_.defined(), "attention needs query, key and value before output");
  return ctx_->run_attention(spec_, q_, k_, v_);
}

Attention UnitContext::attention(AttentionSpec spec) {
  if (spec.heads <= 0 || spec.kv_heads <= 0 || spec.heads % spec.kv_heads != 0) {
    throw PluginError(concat("attention: ", spec.heads, " heads cannot share ", spec.kv_heads, " key/value heads"));
  }
  return Attention(*this, std::move(spec));
}

std::vector<AttentionRange> UnitContext::ranges(const AttentionSpec& spec) const {
  const Segments& queries = segments(spec.partition);
  const Segments& keys = spec.kv_partition == "=" ? queries : segments(spec.kv_partition);
  if (queries.count() != keys.count()) {
    throw PluginError(concat("attention: partition '", spec.partition, "' has ", queries.count(), " segments, '",
                             spec.kv_partition, "' has ", keys.count()));
  }
  std::vector<AttentionRange> out;
  out.reserve(queries.count());
  for (int64_t s = 0; s < queries.count(); ++s) {
    out.push_back({queries.offsets[s], queries.length(s), keys.offsets[s], keys.length(s)});
  }
  return out;
}

Tensor UnitContext::run_attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v) {
  if (state_.cache != nullptr && spec.causal && spec.kv_partition == "=") return cached_attention(spec, q, k, v);
  const VarlenShape shape = shape_of(spec);
  if (state_.kept == nullptr) return varlen_attention(q, k, v, ranges(spec), shape, nullptr, nullptr);
  if (!state_.recomputing) {
    VarlenResult computed;
    Tensor out = varlen_attention(q, k, v, ranges(spec), shape, nullptr, &computed);
    state_.kept->attention.push_back(std::move(computed));
    return out;
  }
  LOOM_CHECK(next_kept_attention_ < state_.kept->attention.size(),
             "the recomputation asks for more attention than the first run");
  return varlen_attention(q, k, v, ranges(spec), shape, &state_.kept->attention[next_kept_attention_++], nullptr);
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
  return varlen_attention_forward(q.contiguous(), slab.keys, slab.values, out, shape_of(spec)).output;
}

}  // namespace loom
