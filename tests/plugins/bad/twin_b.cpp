// One of two plugins that bring an encoder of one name.
#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(twin_b, "1.0", "encoder:twin") { registrar.add(tiny_encoder("twin")); }
