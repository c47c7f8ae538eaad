// A plugin with nothing wrong.
#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(probe, "1.2.0", "encoder:probe") { registrar.add(tiny_encoder("probe")); }
