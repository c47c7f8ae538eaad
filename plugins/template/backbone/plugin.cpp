// What the core knows of this plugin without constructing anything: its name, its configuration and its abilities.
#include "plugins/sdk/plugin.h"

#include "backbone.h"

namespace new_plugin {
namespace {

loom::ComponentSpec spec() {
  loom::ComponentSpec spec;
  spec.name = "new_plugin";
  spec.kind = loom::ComponentKind::backbone;
  spec.doc = "small decoder with rotary attention and a tied head";
  spec.capabilities.axes = {"dp", "fsdp", "tp", "sp", "pp"};
  spec.schema.integer("width", 128, {1, 65536}, "columns of the hidden state")
      .integer("depth", 2, {0, 1000}, "blocks")
      .integer("heads", 4, {1, 1024}, "attention heads; must divide width")
      .integer("kv_heads", 2, {1, 1024}, "key/value heads; must divide heads")
      .integer("ffn", 352, {1, 1048576}, "columns of the feed-forward layer");
  spec.backbone = [](const loom::ConfigValue& config, const loom::BackboneArgs& args,
                     loom::Declarer d) -> std::shared_ptr<loom::Backbone> {
    Config c;
    c.width = config.get_int("width");
    c.depth = config.get_int("depth");
    c.heads = config.get_int("heads");
    c.kv_heads = config.get_int("kv_heads");
    c.ffn = config.get_int("ffn");
    return std::make_shared<NewPluginBackbone>(c, args.vocab, d);
  };
  return spec;
}

}  // namespace
}  // namespace new_plugin

OMNILOOM_PLUGIN(new_plugin, "0.1.0", "backbone:new_plugin") { registrar.add(new_plugin::spec()); }
