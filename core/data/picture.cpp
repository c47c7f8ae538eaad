// The header is read first, by us, so that nothing is decoded that is too large or cut off. The orientation is ours
// too, because a decoder's answers differ by format and version.
#include "core/data/picture.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/picture_formats.h"
#include "core/data/picture_header.h"

namespace loom {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

void check_size(int64_t bytes, const std::string& name) {
  LOOM_CHECK_USER(bytes > 0, name, ": the file is empty; expected a picture");
  LOOM_CHECK_USER(bytes <= kMostBytes, name, ": ", with_commas(bytes), " bytes; a picture file may have at most ",
                  with_commas(kMostBytes));
}

// EXIF: where the stored first row and first column belong.
Tensor turned(const Tensor& pixels_HWC, int orientation) {
  switch (orientation) {
    case 2:
      return pixels_HWC.flip(1);
    case 3:
      return pixels_HWC.flip({0, 1});
    case 4:
      return pixels_HWC.flip(0);
    case 5:
      return pixels_HWC.transpose(0, 1).contiguous();
    case 6:
      return pixels_HWC.transpose(0, 1).flip(1).contiguous();
    case 7:
      return pixels_HWC.transpose(0, 1).flip({0, 1}).contiguous();
    case 8:
      return pixels_HWC.transpose(0, 1).flip(0).contiguous();
    default:
      return pixels_HWC;
  }
}

}  // namespace

Media read_picture(const std::string& path, const std::string& modality, const PictureOptions& options) {
  std::error_code problem;
  const std::filesystem::file_status status = std::filesystem::status(path, problem);
  if (std::filesystem::is_regular_file(status)) {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path, problem));
    if (!problem) check_size(size, path);
  } else if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    throw UserError(path + ": is not a regular file; expected a picture");
  }
  return decode_picture(read_text(path), path, modality, options);
}

Media decode_picture(std::string_view bytes, const std::string& name, const std::string& modality,
                     const PictureOptions& options) {
  check_size(static_cast<int64_t>(bytes.size()), name);
  const PictureHeader header = read_picture_header(bytes, name);
  LOOM_CHECK_USER(header.width <= options.max_pixels / header.height, name, ": ", with_commas(header.width), " x ",
                  with_commas(header.height), " pixels; at most ", with_commas(options.max_pixels),
                  " are allowed (data.max_pixels)");
  if (!header.missing.empty()) throw UserError(cut_off_text(name, bytes.size(), header.missing));
  const Tensor stored =
      header.format == PictureFormat::pnm ? decode_pnm(bytes) : decode_pixels(bytes, header, name, options);
  Media media;
  media.data = turned(stored, header.orientation).unsqueeze(0);
  media.info.modality = modality;
  media.info.height = media.data.size(1);
  media.info.width = media.data.size(2);
  media.info.channels = media.data.size(3);
  return media;
}

}  // namespace loom
