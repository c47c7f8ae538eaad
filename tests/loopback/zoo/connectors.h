#pragma once
// The zoo's connectors: an MLP that may merge neighbouring rows, and one whose embeddings become a stream of their own
// for cross attention.
#include <memory>
#include <vector>

#include "core/nn/mlp.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

enum class Joins { text_rows = 1, context };

class ZooConnector : public Connector {
 public:
  ZooConnector(const Declarer& d, const ZooOptions& options, int64_t merge, Joins joins);
  ~ZooConnector() override;
  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t merge() const override { return merge_; }
  std::vector<BridgeTarget> targets(const BridgeTarget& usual) const override;

 private:
  ZooOptions options_;
  int64_t merge_;
  Joins joins_;
  std::unique_ptr<GeluMlp> mlp_;
  Site drop_;
};

}  // namespace loom::test
