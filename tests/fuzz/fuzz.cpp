// Findings end the process by a trap, so that libFuzzer writes the input down.
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace loom::fuzz {
namespace {

constexpr size_t kLongestMessage = 1000;

}  // namespace

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  path_ = concat("/proc/self/fd/", descriptor_);
  write_fully(descriptor_, bytes, path_);
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

void touch(const void* bytes, size_t size) {
  volatile const unsigned char* at = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < size; ++i) (void)at[i];
}

void require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "finding: %s\n", text);
  __builtin_trap();
}

void expect_parsed_or_refused(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const UserError& error) {
    const std::string_view text = error.what();
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    const bool clean =
        text.size() <= kLongestMessage && std::none_of(text.begin(), text.end(), control) && valid_utf8(text);
    if (!clean) std::fprintf(stderr, "message: %.2000s\n", error.what());
    require(clean, "a message is one short line of plain text");
  }
}

}  // namespace loom::fuzz
