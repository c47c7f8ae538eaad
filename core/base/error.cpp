// Out-of-line destructors are the key functions: one typeinfo for every shared library of a process.
#include "core/base/error.h"

namespace loom {

Error::~Error() = default;
UserError::~UserError() = default;
PluginError::~PluginError() = default;
CommError::~CommError() = default;
EnvironmentError::~EnvironmentError() = default;
InternalError::~InternalError() = default;

void throw_internal(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(concat("internal error at ", file, ":", line, ": ", message, " (", condition, ")"));
}

}  // namespace loom
