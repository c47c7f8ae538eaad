// Claims another LibTorch than the core's.
#define OMNILOOM_TORCH_VERSION "2.4.0"
#define OMNILOOM_TORCH_BUILD "a1b2c3d4e5f6"
#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(other_torch, "1.2.0", "encoder:other_torch") { registrar.add(tiny_encoder("other_torch")); }
