#pragma once
// The plugins that are linked into this program, listed by a file that CMake writes. An explicit table, since a
// registry filled by static constructors vanishes from static archives.
#include <vector>

#include "plugins/sdk/plugin.h"

namespace loom {

std::vector<PluginEntryFunction*> builtin_plugins();

}  // namespace loom
