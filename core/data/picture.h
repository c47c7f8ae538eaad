#pragma once
// A picture file as it is: decoded, turned as its EXIF orientation says, not resized. Pixels equal those of PIL's
// convert("RGB") (grey stays grey). The only user of OpenCV is picture_opencv.cpp.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/step/media.h"

namespace loom {

struct PictureOptions {
  int64_t max_pixels = 100'000'000;  // larger ones are refused from the header, before memory is taken
  bool alpha_on_white = false;       // transparent pixels over white; otherwise alpha is dropped, as PIL does
};

// data is uint8 [1, height, width, 1 or 3], RGB. UserError, one line, when the file is missing, empty, cut off, too
// large or no picture.
Media read_picture(const std::string& path, const std::string& modality, const PictureOptions& options = {});
// The same from bytes; `name` stands in messages.
Media decode_picture(std::string_view bytes, const std::string& name, const std::string& modality,
                     const PictureOptions& options = {});

}  // namespace loom
