// A shared file of a plugin whose name is also linked into the test program.
#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(linked_in, "2.0", "encoder:linked_in") { registrar.add(tiny_encoder("linked_in")); }
