// Compiled with -D_GLIBCXX_USE_CXX11_ABI=0; it names no function of the core, or it would not even link.
#include "plugins/sdk/plugin.h"

OMNILOOM_PLUGIN(other_abi, "1.2.0", "encoder:other_abi") {}
