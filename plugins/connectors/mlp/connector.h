#pragma once
// The LLaVA projector: two layers with GELU between, after an optional norm and an optional merge of neighbouring rows.
#include <cstdint>
#include <optional>

#include "core/model/component.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "plugins/connectors/mlp/config.h"

namespace loom::mlp {

class MlpConnector : public Connector {
 public:
  MlpConnector(const Config& config, const Declarer& d);
  void run(int unit, Streams& s, UnitContext& ctx) override;
  int64_t merge() const override { return config_.merge; }

 private:
  MlpConnector(const Config& config, const Declarer& unit, int declared);

  Config config_;
  std::optional<LayerNorm> layer_norm_;
  std::optional<RmsNorm> rms_norm_;
  GeluMlp projector_;
};

}  // namespace loom::mlp
