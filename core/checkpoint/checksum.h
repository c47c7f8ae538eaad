#pragma once
// The checksum of files: crc32 as zlib counts it, several times faster where the processor multiplies without carries.
// Every byte of a checkpoint passes through it when saved and when loaded.
#include <cstddef>
#include <cstdint>

namespace loom {

// The checksum of what `crc` was of, followed by these bytes; 0 is that of nothing.
uint32_t extend_crc32(uint32_t crc, const void* data, size_t size);

}  // namespace loom
