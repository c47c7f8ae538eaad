#pragma once
// Any picture to the square that a fixed-size ViT takes.
#include <cstdint>

#include "core/base/tensor.h"
#include "encoders/vit/config.h"

namespace loom::vit {

// pixels: uint8 [height, width, channels]. Returns float [size, size, config channels], values 0 to 255. Resizing is
// bicubic with antialiasing, rounded to whole pixel values as image libraries do; grey becomes RGB by repetition, RGB
// grey by luma (ITU-R 601).
Tensor fit_picture(const Tensor& pixels, const Config& config);

}  // namespace loom::vit
