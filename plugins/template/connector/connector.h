#pragma once
// A connector turns an encoder's output rows into rows of the language model. As it stands it is one hidden layer with
// GELU over `merge` neighbouring rows at once; run is yours to change.
#include <vector>

#include "core/model/component.h"
#include "core/nn/mlp.h"

namespace new_plugin {

struct Config {
  int64_t hidden = 128;
  int64_t merge = 1;  // encoder rows per LLM slot
};

class NewPluginConnector : public loom::Connector {
 public:
  NewPluginConnector(const Config& config, int64_t in_width, int64_t out_width, const loom::Declarer& d);

  int64_t merge() const override { return config_.merge; }
  void run(int unit, loom::Streams& s, loom::UnitContext& ctx) override;

 private:
  Config config_;
  std::vector<loom::GeluMlp> mlp_;
};

}  // namespace new_plugin
