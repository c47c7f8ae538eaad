#pragma once
// One function per format for picture_header.cpp. Each fills what it finds and stops at the first thing that is
// missing; CutOff means that the header itself is not whole, Damaged that it makes no sense.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/tensor.h"
#include "core/data/picture.h"
#include "core/data/picture_bytes.h"
#include "core/data/picture_header.h"

namespace loom {

struct Damaged {
  std::string what;  // "a segment of 1 byte at byte 20"
};

void read_png_header(std::string_view bytes, PictureHeader& out);
void read_jpeg_header(std::string_view bytes, PictureHeader& out);
void read_webp_header(std::string_view bytes, PictureHeader& out);
void read_gif_header(std::string_view bytes, PictureHeader& out);
void read_bmp_header(std::string_view bytes, PictureHeader& out);
void read_tiff_header(std::string_view bytes, PictureHeader& out);
void read_pnm_header(std::string_view bytes, PictureHeader& out);

bool is_tiff(std::string_view bytes);
bool is_pnm(std::string_view bytes);
// The orientation in an EXIF block (a TIFF file in small, with or without "Exif\0\0" before it); 1 when it has none or
// is broken, as viewers do.
int exif_orientation(std::string_view block);
// A complete PNG without anything that says how to colour or describe it, its checksums tested: libpng then has nothing
// to print. Damaged when a checksum is wrong.
std::string plain_png(std::string_view bytes);
// Pixels of a complete file of any format but PNM, uint8 [height, width, 1 or 3], RGB, as stored. UserError when its
// contents are damaged.
Tensor decode_pixels(std::string_view bytes, const PictureHeader& header, const std::string& name,
                     const PictureOptions& options);
// Pixels of a complete PNM, uint8 [height, width, 1 or 3]; any maximum becomes 255.
Tensor decode_pnm(std::string_view bytes);

}  // namespace loom
