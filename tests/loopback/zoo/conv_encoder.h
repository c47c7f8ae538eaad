#pragma once
// A convolution stem over a sound-like item: one layer with halo, one that also halves the rows, then attention over
// the halved rows, which are a partition of their own. It can only be cut at even rows.
#include <memory>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

class ConvEncoder : public Encoder {
 public:
  ConvEncoder(const Declarer& d, const ZooOptions& options);
  ~ConvEncoder() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t width() const override { return kZooFeatures; }
  int64_t media_width() const override { return kZooMedia; }
  ItemMeta measure(const MediaInfo& info) const override;
  ItemLayout layout(const ItemMeta& meta) const override;
  Tensor prepare(const Media& media, const Philox& random) const override;

 private:
  ZooOptions options_;
  std::unique_ptr<Linear> first_, second_;
  std::vector<RmsNorm> norms_;
  std::vector<SelfAttention> attentions_;
  std::vector<Site> drops_;
};

}  // namespace loom::test
