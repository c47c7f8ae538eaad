#pragma once
// A language model whose hard traits can be switched on one by one: tied or separate head, GQA with uneven groups, q/k
// norm, dropout, a block with running statistics, interior losses, and cross attention to another stream.
#include <memory>
#include <optional>
#include <vector>

#include "core/nn/embedding.h"
#include "core/nn/linear.h"
#include "core/nn/logprob_head.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

struct BackboneOptions {
  bool tied = true;
  int64_t heads = 3;
  int64_t kv_heads = 1;
  bool qk_norm = true;
  bool statistics = false;
  bool context = false;
  int blocks = 2;
};

class ZooBackbone : public Backbone {
 public:
  ZooBackbone(const Declarer& d, const ZooOptions& options, const BackboneOptions& backbone);
  ~ZooBackbone() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  void end_step(StateTable& states) override;
  int64_t width() const override { return kZooWidth; }
  int64_t vocab() const override { return kZooVocab; }

 private:
  enum class Kind { embed = 1, block, statistics, cross, head };
  struct Unit {
    Kind kind = Kind::embed;
    size_t block = 0;
  };
  void declare_block(const Declarer& d);
  void declare_statistics(const Declarer& d);
  void declare_cross(const Declarer& d);
  Tensor block(size_t i, const Tensor& x, UnitContext& ctx) const;
  Tensor statistics(const Tensor& x, UnitContext& ctx) const;
  Tensor cross(const Streams& s, UnitContext& ctx) const;

  ZooOptions options_;
  BackboneOptions backbone_;
  std::vector<Unit> units_;
  std::unique_ptr<Embedding> embed_;
  std::vector<RmsNorm> norms_, mlp_norms_;
  std::vector<SelfAttention> attentions_;
  std::vector<SwiGlu> mlps_;
  std::vector<Site> drops_;
  std::optional<RmsNorm> cross_norm_, last_norm_;
  std::optional<Linear> query_, key_, value_, cross_out_;
  State mean_, count_, largest_;
  std::unique_ptr<LogProbHead> head_;
};

}  // namespace loom::test
