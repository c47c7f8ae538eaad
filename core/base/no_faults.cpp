// The product's twin of faults.cpp: there are no deliberate faults.
#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {

bool fault(Fault /*which*/) { return false; }

void set_fault(Fault which) {
  if (which != Fault::none) throw InternalError("deliberate faults are not linked into this program");
}

std::string_view fault_name(Fault /*which*/) { return "none"; }

}  // namespace loom
