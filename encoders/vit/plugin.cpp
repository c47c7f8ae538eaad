// The plugin's face: a spec.
#include "plugins/sdk/plugin.h"

#include "encoders/vit/config.h"
#include "encoders/vit/encoder.h"
#include "encoders/vit/weight_map.h"

OMNILOOM_PLUGIN(vit, "0.1.0", "encoder:vit") {
  loom::ComponentSpec spec;
  spec.name = "vit";
  spec.kind = loom::ComponentKind::encoder;
  spec.doc = "vision transformer over square patches of a picture, of fixed size or in its own shape";
  spec.schema = loom::vit::schema();
  spec.capabilities.modality = "image";
  spec.capabilities.axes = {"dp", "fsdp", "tp", "sp"};
  spec.capabilities.dtypes = {"fp32", "fp64", "bf16"};
  spec.weights = loom::vit::weight_rules();
  spec.encoder = [](const loom::ConfigValue& config, const loom::Declarer& d) -> std::shared_ptr<loom::Encoder> {
    return std::make_shared<loom::vit::VitEncoder>(loom::vit::read_config(config), d);
  };
  registrar.add(std::move(spec));
}
