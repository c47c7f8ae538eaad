#pragma once
// An encoder for a medium of your own: a picture, a sound, or anything that can be laid out as rows of numbers. As it
// stands it cuts the medium into patches of consecutive rows and runs a small transformer over them; three functions
// are yours to change: measure, prepare and run. Nothing here knows of padding, packing, sharding, empty ranks or
// communication, and nothing has to.
#include <vector>

#include "core/model/component.h"
#include "core/nn/linear.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"

namespace new_plugin {

using loom::Declarer;
using loom::Tensor;
using loom::UnitContext;

struct Config {
  int64_t channels = 28;  // numbers per row of the medium
  int64_t patch = 4;      // rows per token
  int64_t width = 64;
  int64_t depth = 2;
  int64_t heads = 4;
  double dropout = 0;
};

// One transformer block, written as if for a single sequence on a single device.
class Block {
 public:
  Block(const Declarer& d, const Config& config);
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;

 private:
  double dropout_;
  loom::LayerNorm norm1_, norm2_;
  loom::SelfAttention attention_;
  loom::GeluMlp mlp_;
  loom::Site drop1_, drop2_;
};

class NewPluginEncoder : public loom::Encoder {
 public:
  NewPluginEncoder(const Config& config, const Declarer& d);

  int64_t width() const override { return config_.width; }
  int64_t media_width() const override { return config_.channels * config_.patch; }
  loom::ItemMeta measure(const loom::MediaInfo& info) const override;                   // 1 of 3
  Tensor prepare(const loom::Media& media, const loom::Philox& random) const override;  // 2 of 3
  void run(int unit, loom::Streams& s, UnitContext& ctx) override;                      // 3 of 3

 private:
  Config config_;
  std::vector<loom::Linear> embed_;
  std::vector<Block> blocks_;
  std::vector<loom::LayerNorm> norm_;
};

}  // namespace new_plugin
