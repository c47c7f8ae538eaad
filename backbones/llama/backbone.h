#pragma once
// A decoder of the llama family: RMS norms, rotary attention with grouped keys and values, SwiGLU, tied or separate
// head. Training, prefill and decode are one run: the attention service knows whether there is a cache.
#include <cstdint>
#include <optional>
#include <vector>

#include "backbones/llama/config.h"
#include "core/model/component.h"
#include "core/nn/embedding.h"
#include "core/nn/logprob_head.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"

namespace loom::llama {

class Block {
 public:
  Block(const Declarer& d, const Config& config);
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;

 private:
  RmsNorm attention_norm_;
  SelfAttention attention_;
  RmsNorm mlp_norm_;
  SwiGlu mlp_;
  double dropout_;
  Site attention_dropout_, mlp_dropout_;
};

// Final norm and log-probabilities of the supervised rows only.
class Head {
 public:
  Head(const Declarer& d, const Config& config, Param embedding);
  void operator()(Streams& s, UnitContext& ctx) const;

 private:
  RmsNorm norm_;
  LogProbHead output_;
};

class LlamaBackbone : public Backbone {
 public:
  LlamaBackbone(const Config& config, const Declarer& d);

  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t width() const override { return config_.width; }
  int64_t vocab() const override { return config_.vocab; }
  double cost(int64_t tokens) const override;

 private:
  Config config_;
  Embedding embed_;
  std::vector<Block> blocks_;
  Head head_;
};

}  // namespace loom::llama
