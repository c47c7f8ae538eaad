// Omniloom was built without OpenCV (OMNILOOM_OPENCV=OFF).
#include "core/base/error.h"
#include "core/data/picture_formats.h"

namespace loom {

Tensor decode_pixels(std::string_view /*bytes*/, const PictureHeader& header, const std::string& name,
                     const PictureOptions& /*options*/) {
  throw UserError(concat(name, ": ", name_of(header.format),
                         " is not read: this Omniloom was built without OpenCV; expected PBM, PGM or PPM"));
}

}  // namespace loom
