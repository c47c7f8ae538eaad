#pragma once
// A plain vision transformer over square patches: learned positions, pre-norm blocks, a final norm, one output row per
// patch.
#include <cstdint>
#include <vector>

#include "core/model/component.h"
#include "core/nn/embedding.h"
#include "core/nn/linear.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"
#include "encoders/vit/config.h"

namespace loom::vit {

class Block {
 public:
  Block(const Declarer& d, const Config& config);
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;

 private:
  LayerNorm norm1_;
  SelfAttention attention_;
  LayerNorm norm2_;
  GeluMlp mlp_;
  double dropout_;
  Site attention_dropout_, mlp_dropout_;
};

class VitEncoder : public Encoder {
 public:
  VitEncoder(const Config& config, const Declarer& d);

  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t width() const override { return config_.width; }
  int64_t media_width() const override { return config_.patch_width(); }
  ItemMeta measure(const MediaInfo& info) const override;
  ItemLayout layout(const ItemMeta& meta) const override;
  Tensor prepare(const Media& media, const Philox& random) const override;
  Tensor show(const Tensor& rows, const ItemMeta& meta) const override;

 private:
  struct Embed {
    Embed(const Declarer& d, const Config& config);
    Linear patch;
    PositionEmbedding position;
    Site dropout;
  };

  Config config_;
  Embed embed_;
  std::vector<Block> blocks_;
  LayerNorm norm_;
};

}  // namespace loom::vit
