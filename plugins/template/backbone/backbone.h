#pragma once
// A language model. As it stands it is a small decoder: RMS norm, rotary attention with shared key/value heads, SwiGLU,
// tied head. Training, prefill and decoding are one `run`; the key/value cache belongs to the attention service.
#include <vector>

#include "core/model/component.h"
#include "core/nn/embedding.h"
#include "core/nn/logprob_head.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"

namespace new_plugin {

using loom::Declarer;
using loom::Tensor;
using loom::UnitContext;

struct Config {
  int64_t width = 128;
  int64_t depth = 2;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t ffn = 352;
};

class Block {
 public:
  Block(const Declarer& d, const Config& config);
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;

 private:
  loom::RmsNorm norm1_, norm2_;
  loom::SelfAttention attention_;
  loom::SwiGlu mlp_;
};

class NewPluginBackbone : public loom::Backbone {
 public:
  NewPluginBackbone(const Config& config, int64_t vocab, const Declarer& d);

  int64_t width() const override { return config_.width; }
  int64_t vocab() const override { return vocab_; }
  void run(int unit, loom::Streams& s, UnitContext& ctx) override;

 private:
  Config config_;
  int64_t vocab_;
  std::vector<loom::Embedding> embed_;
  std::vector<Block> blocks_;
  std::vector<loom::RmsNorm> norm_;
  std::vector<loom::LogProbHead> head_;
};

}  // namespace new_plugin
