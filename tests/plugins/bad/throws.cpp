// Throws while it registers, after a first spec went through.
#include <stdexcept>

#include "tests/plugins/bad/tiny_spec.h"

OMNILOOM_PLUGIN(throws, "1.0", "encoder:throws") {
  registrar.add(tiny_encoder("throws"));
  throw std::runtime_error("the licence server does not answer");
}
