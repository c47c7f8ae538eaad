#pragma once
// Any picture to the size that the encoder takes, and prepared rows back to a picture.
#include <cstdint>

#include "core/base/tensor.h"
#include "encoders/vit/config.h"

namespace loom::vit {

struct Size {
  int64_t height = 0, width = 0;
};

// What a picture of this size becomes: image_size squared, or with `fit: native` its own shape in whole units of patch
// * multiple.
Size fitted_size(int64_t height, int64_t width, const Config& config);

// pixels: uint8 [height, width, channels]. Returns float [fitted size, config channels], values 0 to 255. Resizing is
// bicubic with antialiasing, rounded to whole pixel values as image libraries do; grey becomes RGB by repetition, RGB
// grey by luma (ITU-R 601).
Tensor fit_picture(const Tensor& pixels, const Config& config);

// Fitted pixels to normalised patches [patches, patch_width()] and back, the latter as uint8.
Tensor to_patches(const Tensor& pixels_HWC, const Config& config);
Tensor from_patches(const Tensor& rows, const Size& size, const Config& config);

}  // namespace loom::vit
