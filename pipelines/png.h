#pragma once
// A small PNG writer for the report: 8-bit grey, RGB or RGBA, rows filtered the usual way, deflated by zlib. Lossless
// and about sixty lines, where an imaging library would add a third of a second to the start of the process.
#include <cstdint>
#include <string>

#include "core/base/tensor.h"

namespace loom {

// The file's bytes. `picture` is uint8 [height, width, channels] with 1, 3 or 4 channels, or [height, width].
std::string encode_png(const Tensor& picture);
// "data:image/png;base64,..."; pictures with a side above `largest` are averaged down to it first.
std::string png_data_uri(const Tensor& picture, int64_t largest = 320);
std::string base64(const std::string& bytes);

}  // namespace loom
