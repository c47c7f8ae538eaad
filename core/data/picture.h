#pragma once
// A picture file as it is: decoded, turned as its EXIF orientation says, not resized. The only user of OpenCV.
#include <string>

#include "core/step/media.h"

namespace loom {

// data is uint8 [1, height, width, 1 or 3], RGB. UserError when the file is missing or no picture.
Media read_picture(const std::string& path, const std::string& modality);

}  // namespace loom
