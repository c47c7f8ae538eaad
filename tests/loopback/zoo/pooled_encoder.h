#pragma once
// One output row per item: a class token is put before the item's rows (a partition with one more row), and after
// attention either its row or the mean of all rows is what leaves.
#include <memory>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/norm.h"
#include "core/nn/self_attention.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

enum class Pool { class_row = 1, mean };

class PooledEncoder : public Encoder {
 public:
  PooledEncoder(const Declarer& d, const ZooOptions& options, Pool pool);
  ~PooledEncoder() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t width() const override { return kZooFeatures; }
  int64_t media_width() const override { return kZooMedia; }
  ItemMeta measure(const MediaInfo& info) const override;
  ItemLayout layout(const ItemMeta& meta) const override;
  Tensor prepare(const Media& media, const Philox& random) const override;

 private:
  Tensor with_class_rows(const Tensor& x, UnitContext& ctx) const;

  ZooOptions options_;
  Pool pool_;
  std::unique_ptr<Linear> embed_, out_;
  Param class_;
  std::unique_ptr<LayerNorm> norm_, last_;
  std::unique_ptr<SelfAttention> attention_;
  Site drop_;
};

}  // namespace loom::test
