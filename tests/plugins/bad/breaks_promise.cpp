// Registers something else than its descriptor says.
#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(breaks_promise, "1.0", "encoder:promised") { registrar.add(tiny_encoder("other")); }
