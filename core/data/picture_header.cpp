// Which format, and PNG, WebP, GIF and BMP; JPEG, TIFF with EXIF, and PNM have files of their own.
#include "core/data/picture_header.h"

#include <zlib.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/picture_formats.h"

namespace loom {
namespace {

constexpr std::string_view kPngStart("\x89PNG\r\n\x1a\n", 8);

bool is_plain_chunk(std::string_view type) {
  return type == "IHDR" || type == "PLTE" || type == "tRNS" || type == "IDAT" || type == "IEND";
}

// Behind the sub-blocks of a GIF that begin at `at`.
uint64_t after_sub_blocks(const PictureBytes& in, uint64_t at) {
  while (true) {
    const uint64_t length = in.u8(at++);
    if (length == 0) return at;
    at += length;
  }
}

uint64_t colour_table(uint64_t flags) { return (flags & 0x80) != 0 ? 3ULL << ((flags & 7) + 1) : 0; }

// Run lengths of a BMP up to their end code.
bool run_lengths_end(const PictureBytes& in, uint64_t at, uint64_t bits) {
  while (in.has(at, 2)) {
    const uint64_t count = in.u8(at), code = in.u8(at + 1);
    at += 2;
    if (count != 0 || code == 0) continue;
    if (code == 1) return true;
    const uint64_t literal = bits == 8 ? code : (code + 1) / 2;
    at += code == 2 ? 2 : literal + literal % 2;
  }
  return false;
}

// The size in a "VP8 " or "VP8L" chunk.
void read_webp_size(const PictureBytes& in, uint64_t at, bool lossless, PictureHeader& out) {
  if (lossless) {
    if (in.u8(at) != 0x2f) throw Damaged{"its VP8L chunk has no signature"};
    const uint64_t packed = in.u32(at + 1);
    out.width = static_cast<int64_t>(packed & 0x3fff) + 1;
    out.height = static_cast<int64_t>(packed >> 14 & 0x3fff) + 1;
    return;
  }
  if (in.text(at + 3, 3) != std::string_view("\x9d\x01\x2a")) throw Damaged{"its VP8 chunk has no start code"};
  out.width = static_cast<int64_t>(in.u16(at + 6) & 0x3fff);
  out.height = static_cast<int64_t>(in.u16(at + 8) & 0x3fff);
}

}  // namespace

void read_png_header(std::string_view bytes, PictureHeader& out) {
  const PictureBytes in(bytes);
  if (in.text(12, 4) != "IHDR" || in.u32(8) != 13) throw Damaged{"its first chunk is not IHDR"};
  out.width = static_cast<int64_t>(in.u32(16));
  out.height = static_cast<int64_t>(in.u32(20));
  out.bits = static_cast<int64_t>(in.u8(24));
  const uint64_t colour = in.u8(25);
  out.grey = colour == 0 || colour == 4;
  uint64_t at = kPngStart.size();
  bool pixels = false;
  while (in.has(at, 12) && in.has(at + 12, in.u32(at))) {
    const uint64_t length = in.u32(at);
    const std::string_view type = in.text(at + 4, 4);
    if (type == "IDAT") pixels = true;
    if (type == "eXIf") out.orientation = exif_orientation(in.text(at + 8, length));
    if (type == "IEND") {
      if (!pixels) throw Damaged{"it has no IDAT chunk"};
      return;
    }
    at += 12 + length;
  }
  out.missing = "the PNG has no IEND chunk";
}

std::string plain_png(std::string_view bytes) {
  const PictureBytes in(bytes);
  std::string out(kPngStart);
  uint64_t at = kPngStart.size();
  while (in.has(at, 12)) {
    const uint64_t length = in.u32(at);
    const std::string_view type = in.text(at + 4, 4);
    if (is_plain_chunk(type)) {
      const std::string_view summed = in.text(at + 4, length + 4);
      const uLong sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(summed.data()), summed.size());
      if (sum != in.u32(at + 8 + length)) throw Damaged{concat("the checksum of its ", type, " chunk is wrong")};
      out += in.text(at, 12 + length);
    }
    if (type == "IEND") break;  // what follows is no chunk
    at += 12 + length;
  }
  return out;
}

void read_webp_header(std::string_view bytes, PictureHeader& out) {
  const PictureBytes in(bytes, ByteOrder::little);
  const uint64_t end = 8 + in.u32(4);
  uint64_t at = 12;
  bool extended = false, pixels = false;
  while (at + 8 <= end && in.has(at, 8)) {
    const std::string_view type = in.text(at, 4);
    const uint64_t length = in.u32(at + 4), data = at + 8;
    if (type == "VP8X" && at == 12) {
      extended = true;
      if ((in.u8(data) & 2) != 0) throw Damaged{"it is animated; expected a still picture"};
      out.width = static_cast<int64_t>(in.number(data + 4, 3)) + 1;
      out.height = static_cast<int64_t>(in.number(data + 7, 3)) + 1;
    } else if ((type == "VP8 " || type == "VP8L") && !pixels) {
      pixels = true;
      PictureHeader inner;
      read_webp_size(in, data, type == "VP8L", inner);
      if (!extended) {
        out.width = inner.width;
        out.height = inner.height;
      } else if (inner.width != out.width || inner.height != out.height) {
        throw Damaged{
            concat("it claims ", out.width, " x ", out.height, " pixels and holds ", inner.width, " x ", inner.height)};
      }
    } else if (type == "EXIF" && extended && in.has(data, length)) {
      out.orientation = exif_orientation(in.text(data, length));
    }
    at = data + length + length % 2;
  }
  if (out.width == 0 && in.size() < end) throw CutOff{};
  if (in.size() < end) {
    out.missing = concat("the WebP should have ", with_commas(static_cast<int64_t>(end)));
  } else if (!pixels) {
    throw Damaged{"it has no picture chunk"};
  }
}

void read_gif_header(std::string_view bytes, PictureHeader& out) {
  const PictureBytes in(bytes, ByteOrder::little);
  out.width = static_cast<int64_t>(in.u16(6));
  out.height = static_cast<int64_t>(in.u16(8));
  uint64_t at = 13 + colour_table(in.u8(10));
  try {
    while (in.u8(at) != 0x3b) {
      const uint64_t block = in.u8(at);
      if (block == 0x2c) {
        at = after_sub_blocks(in, at + 11 + colour_table(in.u8(at + 9)));
      } else if (block == 0x21) {
        at = after_sub_blocks(in, at + 2);
      } else {
        throw Damaged{concat("an unknown block at byte ", at)};
      }
    }
  } catch (const CutOff&) {
    out.missing = "the GIF has no end byte";
  }
}

void read_bmp_header(std::string_view bytes, PictureHeader& out) {
  const PictureBytes in(bytes, ByteOrder::little);
  const uint64_t pixels = in.u32(10), header = in.u32(14);
  uint64_t bits = 0, packing = 0;
  if (header == 12) {
    out.width = static_cast<int64_t>(in.u16(18));
    out.height = static_cast<int64_t>(in.u16(20));
    bits = in.u16(24);
  } else if (header >= 40) {
    out.width = static_cast<int32_t>(in.u32(18));
    out.height = std::abs(static_cast<int64_t>(static_cast<int32_t>(in.u32(22))));  // negative: from the top down
    bits = in.u16(28);
    packing = in.u32(30);
  } else {
    throw Damaged{concat("a header of ", header, " bytes")};
  }
  if (out.width <= 0 || out.height <= 0) return;
  if (packing == 1 || packing == 2) {
    if (!run_lengths_end(in, pixels, packing == 1 ? 8 : 4)) out.missing = "the BMP has no end code";
    return;
  }
  if (bits < 1 || bits > 32) throw Damaged{concat(bits, " bits per pixel")};
  const uint64_t row = (static_cast<uint64_t>(out.width) * bits + 31) / 32 * 4;
  const bool whole = in.size() >= pixels && (in.size() - pixels) / row >= static_cast<uint64_t>(out.height);
  if (!whole) out.missing = "the BMP's last row is not whole";
}

const char* name_of(PictureFormat format) {
  switch (format) {
    case PictureFormat::png:
      return "PNG";
    case PictureFormat::jpeg:
      return "JPEG";
    case PictureFormat::webp:
      return "WebP";
    case PictureFormat::gif:
      return "GIF";
    case PictureFormat::bmp:
      return "BMP";
    case PictureFormat::tiff:
      return "TIFF";
    case PictureFormat::pnm:
      return "PNM";
  }
  return "picture";
}

std::string cut_off_text(const std::string& name, uint64_t bytes, const std::string& missing) {
  return concat(name, ": cut off: ", with_commas(static_cast<int64_t>(bytes)), bytes == 1 ? " byte, " : " bytes, ",
                missing);
}

PictureHeader read_picture_header(std::string_view bytes, const std::string& name) {
  using Reader = void (*)(std::string_view, PictureHeader&);
  const PictureBytes in(bytes);
  PictureHeader out;
  Reader reader = nullptr;
  const auto found = [&](PictureFormat format, Reader function) {
    out.format = format;
    reader = function;
  };
  if (in.says(0, kPngStart)) found(PictureFormat::png, read_png_header);
  if (in.says(0, "\xff\xd8\xff")) found(PictureFormat::jpeg, read_jpeg_header);
  if (in.says(0, "RIFF") && in.says(8, "WEBP")) found(PictureFormat::webp, read_webp_header);
  if (in.says(0, "GIF87a") || in.says(0, "GIF89a")) found(PictureFormat::gif, read_gif_header);
  if (in.says(0, "BM")) found(PictureFormat::bmp, read_bmp_header);
  if (is_tiff(bytes)) found(PictureFormat::tiff, read_tiff_header);
  if (is_pnm(bytes)) found(PictureFormat::pnm, read_pnm_header);
  LOOM_CHECK_USER(reader != nullptr, name,
                  ": not a picture that can be decoded; expected PNG, JPEG, WebP, BMP, TIFF or PNM");
  const char* format = name_of(out.format);
  try {
    reader(bytes, out);
  } catch (const CutOff&) {
    throw UserError(cut_off_text(name, bytes.size(), concat("the header of the ", format, " is not whole")));
  } catch (const Damaged& damage) {
    throw UserError(concat(name, ": cannot use this ", format, ": ", damage.what));
  }
  LOOM_CHECK_USER(out.width > 0 && out.height > 0, name, ": the ", format, " claims ", out.width, " x ", out.height,
                  " pixels");
  return out;
}

}  // namespace loom
