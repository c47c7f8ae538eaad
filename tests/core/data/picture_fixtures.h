#pragma once
// Small picture files as bytes, written once by PIL, and what is needed to take them apart. The colour ones show
// pattern().
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace loom::test {

struct PictureFixture {
  const char* name;
  int64_t width, height, channels;
  bool exact;  // its pixels are those of pattern()
  std::string bytes;
};

inline std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

// uint8 [3, 5, 3]: (40 x, 60 y, 10 x + 20 y + 3).
at::Tensor pattern();
// A 5 x 3 PNG, WebP, BMP, TIFF and PPM of pattern(), and a baseline (with restarts) and a progressive JPEG of 10 x 12.
const std::vector<PictureFixture>& picture_fixtures();
const PictureFixture& picture_fixture(const std::string& name);
// 5 x 3, for which a GIF reader is needed.
std::string gif_fixture();

std::string big(uint64_t value, int bytes);
std::string little(uint64_t value, int bytes);
// An EXIF block without "Exif\0\0" that says just this.
std::string exif_block(uint64_t orientation, bool big_endian, uint64_t type = 3);
// The fixture's file with the block where its format keeps it; for "tiff" the tag is set instead.
std::string with_orientation(const std::string& name, uint64_t orientation);

}  // namespace loom::test
