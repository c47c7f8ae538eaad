// What the core knows of this plugin without constructing anything: its name, its configuration and its abilities.
#include "plugins/sdk/plugin.h"

#include "encoder.h"

namespace new_plugin {
namespace {

loom::ComponentSpec spec() {
  loom::ComponentSpec spec;
  spec.name = "new_plugin";
  spec.kind = loom::ComponentKind::encoder;
  spec.doc = "transformer over patches of rows";
  spec.capabilities.modality = "new_plugin";
  spec.capabilities.axes = {"dp", "fsdp", "tp", "sp"};
  spec.schema.integer("channels", 28, {1, 65536}, "numbers per row of the medium")
      .integer("patch", 4, {1, 65536}, "rows per token")
      .integer("width", 64, {1, 65536}, "columns of the hidden state")
      .integer("depth", 2, {0, 1000}, "blocks")
      .integer("heads", 4, {1, 1024}, "attention heads; must divide width")
      .number("dropout", 0, {0, 0.99}, "after attention and feed-forward");
  spec.encoder = [](const loom::ConfigValue& config, loom::Declarer d) -> std::shared_ptr<loom::Encoder> {
    Config c;
    c.channels = config.get_int("channels");
    c.patch = config.get_int("patch");
    c.width = config.get_int("width");
    c.depth = config.get_int("depth");
    c.heads = config.get_int("heads");
    c.dropout = config.get_number("dropout");
    return std::make_shared<NewPluginEncoder>(c, d);
  };
  return spec;
}

}  // namespace
}  // namespace new_plugin

OMNILOOM_PLUGIN(new_plugin, "0.1.0", "encoder:new_plugin") { registrar.add(new_plugin::spec()); }
