#pragma once
// Resizing of pictures as PIL does it: bicubic with antialias, on the CPU. For the prepare() of encoders.
#include <cstdint>

#include "core/base/tensor.h"

namespace loom {

// pixels [height, width, channels], uint8 or float in 0..255 (rounded first); the result is of the same type, whole
// values in 0..255, the bytes that PIL 13 gives. Unchanged when the size is.
Tensor resize_picture(const Tensor& pixels_HWC, int64_t height, int64_t width);

}  // namespace loom
