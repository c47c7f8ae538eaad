#include "tests/loopback/zoo/connectors.h"

#include <ATen/ATen.h>

namespace loom::test {

ZooConnector::ZooConnector(const Declarer& d, const ZooOptions& options, int64_t merge, Joins joins)
    : options_(options), merge_(merge), joins_(joins) {
  const StreamDecl features{"features", kZooFeatures, "", false}, out{"embeddings", kZooWidth, "slots", false};
  const Declarer u = d.unit({"mlp", {features}, {out}, Mixes::none, true, {}});
  mlp_ = std::make_unique<GeluMlp>(u, GeluMlpOptions{kZooFeatures * merge, 10, kZooWidth, true, Gelu::exact, "slots"});
  drop_ = u.site("drop");
}

ZooConnector::~ZooConnector() = default;

void ZooConnector::run(int, Streams& s, UnitContext& ctx) {
  const Tensor& x = s["features"];
  const Tensor y = (*mlp_)(x.reshape({x.size(0) / merge_, kZooFeatures * merge_}), ctx);
  s.set("embeddings", ctx.dropout(y, options_.dropout, drop_, "slots"));
}

std::vector<BridgeTarget> ZooConnector::targets(const BridgeTarget& usual) const {
  if (joins_ == Joins::context) return {{"context", usual.unit, BridgeMode::stream, "embeddings"}};
  return {usual};
}

}  // namespace loom::test
