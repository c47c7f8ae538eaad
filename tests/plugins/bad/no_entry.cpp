// A descriptor without the entry function that it leads to.
#include "plugins/sdk/plugin.h"

extern const loom::sdk::DescriptorText lonely_descriptor;
__attribute__((used, retain, section("omniloom_plugin"))) constinit const loom::sdk::DescriptorText lonely_descriptor =
    loom::sdk::describe("no_entry", "1.0", "encoder:no_entry");
