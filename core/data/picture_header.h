#pragma once
// What a picture file says of itself before any pixel is decoded: format, size, orientation, and whether its end is
// there. Written by us because a decoder must not be started for a file that claims gigapixels, because OpenCV decodes
// a cut JPEG without a word, and because it does not know the orientation of every format.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loom {

enum class PictureFormat { png = 1, jpeg, webp, gif, bmp, tiff, pnm };

struct PictureHeader {
  PictureFormat format = PictureFormat::png;
  int64_t width = 0, height = 0;  // as stored, before the orientation is applied
  int64_t bits = 8;               // per sample
  bool grey = false;              // one channel, beside alpha
  int orientation = 1;            // EXIF: 1 = upright ... 8
  bool inks = false;              // JPEG: four channels, CMYK
  bool white_is_zero = false;     // TIFF
  std::string missing{};          // what a file that was cut off lacks ("the JPEG has no end marker"); empty = complete
  // Bytes to change before a TIFF is decoded: place and value. The library then neither turns the picture nor
  // multiplies by alpha.
  std::vector<std::pair<uint64_t, char>> changes{};
};

const char* name_of(PictureFormat format);  // "PNG"

// UserError, one line, when the bytes are no picture, are cut off before the size is known, or contradict themselves.
PictureHeader read_picture_header(std::string_view bytes, const std::string& name);
// "a.jpg: cut off: 5,120 bytes, the JPEG has no end marker"
std::string cut_off_text(const std::string& name, uint64_t bytes, const std::string& missing);

}  // namespace loom
