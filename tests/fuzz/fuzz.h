#pragma once
// What all fuzz targets share: bytes as a file that never touches a disk, and the one outcome besides success that a
// parser of foreign bytes may have: a UserError that fits on a line. Whatever else is thrown, and every report of a
// sanitizer, ends the process and is a finding.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace loom::fuzz {

inline std::string_view view(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// A file in memory with a path of its own, for parsers that open paths.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int descriptor_ = -1;
  std::string path_;
};

// Runs it. A UserError is fine when its text is one short line of valid UTF-8 without control characters.
void expect_parsed_or_refused(const std::function<void()>& parse);
// Reads every byte, so that a sanitizer sees what is not ours.
void touch(const void* bytes, size_t size);
// Ends the process with the text when the condition does not hold.
void require(bool condition, const char* text);

}  // namespace loom::fuzz
