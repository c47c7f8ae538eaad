// The plugin's face: a spec.
#include "plugins/sdk/plugin.h"

#include "backbones/llama/backbone.h"
#include "backbones/llama/config.h"
#include "backbones/llama/weight_map.h"

OMNILOOM_PLUGIN(llama, "0.1.0", "backbone:llama") {
  loom::ComponentSpec spec;
  spec.name = "llama";
  spec.kind = loom::ComponentKind::backbone;
  spec.doc = "decoder of the llama family (Llama 3, Qwen2, Qwen3): RMS norm, rotary, grouped attention, SwiGLU";
  spec.schema = loom::llama::schema();
  spec.capabilities.axes = {"dp", "fsdp", "tp", "sp", "pp"};
  spec.capabilities.dtypes = {"fp32", "fp64", "bf16"};
  spec.weights = loom::llama::weight_rules();
  spec.backbone = [](const loom::ConfigValue& config, const loom::BackboneArgs& args,
                     const loom::Declarer& d) -> std::shared_ptr<loom::Backbone> {
    return std::make_shared<loom::llama::LlamaBackbone>(loom::llama::read_config(config, args), d);
  };
  registrar.add(std::move(spec));
}
