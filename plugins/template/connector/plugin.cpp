// What the core knows of this plugin without constructing anything: its name, its configuration and its abilities.
#include "plugins/sdk/plugin.h"

#include "connector.h"

namespace new_plugin {
namespace {

loom::ComponentSpec spec() {
  loom::ComponentSpec spec;
  spec.name = "new_plugin";
  spec.kind = loom::ComponentKind::connector;
  spec.doc = "one hidden layer over merged rows";
  spec.schema.integer("hidden", 128, {1, 1048576}, "columns of the hidden layer")
      .integer("merge", 1, {1, 64}, "encoder rows per LLM slot");
  spec.connector = [](const loom::ConfigValue& config, const loom::ConnectorArgs& args,
                      loom::Declarer d) -> std::shared_ptr<loom::Connector> {
    const Config c{config.get_int("hidden"), config.get_int("merge")};
    return std::make_shared<NewPluginConnector>(c, args.in_width, args.out_width, d);
  };
  return spec;
}

}  // namespace
}  // namespace new_plugin

OMNILOOM_PLUGIN(new_plugin, "0.1.0", "connector:new_plugin") { registrar.add(new_plugin::spec()); }
