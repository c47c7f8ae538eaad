// Needs libgone.so.59, which no search path of the dynamic linker leads to.
#include "tests/plugins/bad/tiny_spec.h"

extern "C" int gone_answer();

OMNILOOM_PLUGIN(missing_dependency, "1.0", "encoder:missing_dependency") {
  registrar.add(tiny_encoder(gone_answer() == 42 ? "missing_dependency" : ""));
}
