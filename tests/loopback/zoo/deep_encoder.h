#pragma once
// Deepstack: inner blocks of the encoder hand streams of their own to the connector, which adds them to the backbone's
// rows before later units. Rows lie in reverse order, so features and taps leave through one permutation.
#include <memory>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

class DeepEncoder : public Encoder {
 public:
  DeepEncoder(const Declarer& d, const ZooOptions& options);
  ~DeepEncoder() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t width() const override { return kZooFeatures; }
  int64_t media_width() const override { return kZooMedia; }
  ItemMeta measure(const MediaInfo& info) const override;
  ItemLayout layout(const ItemMeta& meta) const override;
  Tensor prepare(const Media& media, const Philox& random) const override;

 private:
  ZooOptions options_;
  std::unique_ptr<Linear> embed_;
  std::vector<RmsNorm> norms_;
  std::vector<SelfAttention> attentions_;
  std::vector<Site> drops_;
};

class DeepConnector : public Connector {
 public:
  explicit DeepConnector(const Declarer& d);
  ~DeepConnector() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  std::vector<BridgeTarget> targets(const BridgeTarget& usual) const override;

 private:
  std::unique_ptr<GeluMlp> mlp_;
  std::vector<Linear> taps_;
};

}  // namespace loom::test
