// The test program's own table of linked-in plugins; it takes the place of the generated one.
#include "plugins/loader/builtin_table.h"
#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(linked_in, "1.0", "encoder:linked_in") { registrar.add(tiny_encoder("linked_in")); }

namespace loom {
std::vector<PluginEntryFunction*> builtin_plugins() { return {&omniloom_plugin_linked_in}; }
}  // namespace loom
