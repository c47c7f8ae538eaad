// /proc/self/status: getrusage would count what the parent held before it became this program.
#include "core/observe/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace loom {
namespace {

// "VmRSS:   1234 kB" as bytes; 0 when the field is missing.
int64_t field_bytes(const char* text, const char* name) {
  const char* at = std::strstr(text, name);
  return at == nullptr ? 0 : std::strtoll(at + std::strlen(name), nullptr, 10) * 1024;
}

}  // namespace

ProcessMemory process_memory() {
  const int descriptor = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  std::array<char, 8192> text{};
  const ssize_t got = ::read(descriptor, text.data(), text.size() - 1);
  ::close(descriptor);
  if (got <= 0) return {};
  return {field_bytes(text.data(), "VmRSS:"), field_bytes(text.data(), "VmHWM:")};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  std::string out = name.data();
  for (char& c : out) {
    if (c == '/' || c == ' ') c = '-';
  }
  return out;
}

}  // namespace loom
