#pragma once
// Multi-head self attention over a partition: one fused qkv projection, optional norm of q and k, rotary, output
// projection.
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/tensor.h"
#include "core/nn/declare.h"
#include "core/nn/linear.h"
#include "core/nn/norm.h"
#include "core/nn/rotary.h"

namespace loom {

class UnitContext;

struct SelfAttentionOptions {
  int64_t width = 0;
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0 = heads
  int64_t head_dim = 0;  // 0 = width / heads
  bool causal = false;
  int64_t window = 0;  // 0 = all
  bool qkv_bias = true;
  bool out_bias = true;
  bool qk_norm = false;  // RMS norm of every head of q and k, before rotary
  double norm_eps = 1e-6;
  double rotary_theta = 0;  // 0 = no rotary
  std::string partition{};
};

class SelfAttention {
 public:
  SelfAttention(const Declarer& d, SelfAttentionOptions options);
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;

 private:
  SelfAttentionOptions options_;  // with defaults filled in
  Linear qkv_, out_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  std::optional<Rotary> rotary_;
};

}  // namespace loom
