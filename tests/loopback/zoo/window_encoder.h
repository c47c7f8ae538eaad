#pragma once
// Pictures of any size: rows ordered by windows of 2 x 3, those at the border smaller; blocks of attention within
// windows and blocks over the whole picture. Its order is its own, so the outputs leave through a permutation.
#include <memory>
#include <vector>

#include "core/nn/embedding.h"
#include "core/nn/linear.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

class WindowEncoder : public Encoder {
 public:
  WindowEncoder(const Declarer& d, const ZooOptions& options);
  ~WindowEncoder() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t width() const override { return kZooFeatures; }
  int64_t media_width() const override { return kZooMedia; }
  ItemMeta measure(const MediaInfo& info) const override;
  ItemLayout layout(const ItemMeta& meta) const override;
  Tensor prepare(const Media& media, const Philox& random) const override;

 private:
  ZooOptions options_;
  std::unique_ptr<Linear> embed_;
  std::unique_ptr<PositionEmbedding> position_;
  std::vector<LayerNorm> norms_;
  std::vector<SelfAttention> attentions_;
  std::vector<Site> drops_;
};

}  // namespace loom::test
