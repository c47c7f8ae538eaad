// The plugin's face: a spec.
#include "plugins/sdk/plugin.h"

#include "plugins/connectors/mlp/config.h"
#include "plugins/connectors/mlp/connector.h"
#include "plugins/connectors/mlp/weight_map.h"

OMNILOOM_PLUGIN(mlp, "0.1.0", "connector:mlp") {
  loom::ComponentSpec spec;
  spec.name = "mlp";
  spec.kind = loom::ComponentKind::connector;
  spec.doc = "two layers with GELU between encoder and backbone (LLaVA), optionally merging neighbouring rows";
  spec.schema = loom::mlp::schema();
  spec.capabilities.axes = {"dp", "fsdp", "tp", "sp"};
  spec.capabilities.dtypes = {"fp32", "fp64", "bf16"};
  spec.weights = loom::mlp::weight_rules();
  spec.connector = [](const loom::ConfigValue& config, const loom::ConnectorArgs& args,
                      loom::Declarer d) -> std::shared_ptr<loom::Connector> {
    return std::make_shared<loom::mlp::MlpConnector>(loom::mlp::read_config(config, args), d);
  };
  registrar.add(std::move(spec));
}
