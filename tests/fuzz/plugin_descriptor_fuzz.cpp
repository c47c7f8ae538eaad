// The search for a plugin's descriptor in any bytes, and the comparison of what was found with this core.
#include "core/base/text.h"
#include "plugins/loader/descriptor.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loom;
  const std::optional<Descriptor> found = find_descriptor(fuzz::view(data, size));
  if (!found) return 0;
  fuzz::require(!found->name.empty() && !found->provides.empty(), "a descriptor names itself and what it provides");
  fuzz::require(found->offers(found->provides.front()), "a descriptor offers what it provides");
  const std::optional<std::string> reason = explain_mismatch(*found, "libx.omniloom.so", core_descriptor());
  fuzz::require(!reason || (reason->find('\n') == std::string::npos && valid_utf8(*reason)), "a reason is one line");
  return 0;
}
