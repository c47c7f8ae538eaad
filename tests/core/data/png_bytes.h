#pragma once
// PNG files made without any library but zlib.
#include <zlib.h>

#include <cstdint>
#include <functional>
#include <string>

namespace loom::test {

inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// 8 bits, 1 channel (grey) or 3 (RGB); `pixel` gives the value at (y, x, channel).
inline std::string png_bytes(int height, int width, int channels, const std::function<int(int, int, int)>& pixel) {
  const auto chunk = [](const std::string& kind, const std::string& body) {
    const std::string named = kind + body;
    const uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
    return big_endian(static_cast<uint32_t>(body.size())) + named + big_endian(static_cast<uint32_t>(sum));
  };
  std::string rows;
  for (int y = 0; y < height; ++y) {
    rows += '\0';
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) rows += static_cast<char>(pixel(y, x, c));
    }
  }
  uLongf size = ::compressBound(static_cast<uLong>(rows.size()));
  std::string packed(size, '\0');
  ::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
              static_cast<uLong>(rows.size()), 1);
  packed.resize(size);
  const std::string header = big_endian(static_cast<uint32_t>(width)) + big_endian(static_cast<uint32_t>(height)) +
                             std::string({8, static_cast<char>(channels == 1 ? 0 : 2), 0, 0, 0});
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", packed) + chunk("IEND", "");
}

inline std::string grey_png(int height, int width, int value) {
  return png_bytes(height, width, 1, [value](int, int, int) { return value; });
}

}  // namespace loom::test
