#pragma once
// A small PNG writer for the report: 8-bit grey, RGB or RGBA, rows filtered the usual way, deflated by zlib. Lossless
// and about sixty lines, where an imaging library would add a third of a second to the start of the process.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/tensor.h"

namespace loom {

// At most `largest` pixels a side, [height, width, channels]; averaged.
Tensor scaled_down(const Tensor& picture, int64_t largest);
// The file's bytes. `picture` is uint8 [height, width, channels] with 1, 3 or 4 channels, or [height, width].
std::string encode_png(const Tensor& picture);
// The same with sides of at most `largest` pixels, averaged down further until the file has at most `bytes`; below 32
// pixels it is kept whatever its size.
std::string encode_png_within(const Tensor& picture, int64_t largest, size_t bytes);
// "data:image/png;base64,..."; pictures with a side above `largest` are averaged down to it first.
std::string png_data_uri(const Tensor& picture, int64_t largest = 320);
// The same around a PNG file's bytes.
std::string png_data_uri(const std::string& png);
std::string base64(const std::string& bytes);
// UserError when the text is not base64.
std::string from_base64(const std::string& text);

}  // namespace loom
