// OpenCV gives the stored pixels; 16 bits to 8 and alpha are ours.
#include <ATen/ATen.h>

#include <algorithm>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/picture_formats.h"

namespace loom {
namespace {

int keep_quiet(int /*status*/, const char* /*function*/, const char* /*text*/, const char* /*file*/, int /*line*/,
               void* /*data*/) {
  return 0;
}

// Pictures are decoded in our threads; OpenCV starts none and prints nothing.
void set_up_opencv() {
  static const bool done = [] {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    cv::redirectError(keep_quiet);
    cv::setNumThreads(1);
    return true;
  }();
  static_cast<void>(done);
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return std::string(trim(text));
}

// As stored: 8 or 16 bits; 1, 2, 3 (BGR) or 4 (BGRA) channels.
cv::Mat stored_pixels(std::string_view bytes, const PictureHeader& header, const std::string& name) {
  set_up_opencv();
  std::string changed;
  const char* format = name_of(header.format);
  if (header.format == PictureFormat::png) {
    try {
      changed = plain_png(bytes);
    } catch (const Damaged& damage) {
      throw UserError(concat(name, ": cannot decode this ", format, ": ", damage.what));
    }
  }
  if (!header.changes.empty()) {
    changed = bytes;
    for (const auto& [at, value] : header.changes) changed[at] = value;
  }
  if (!changed.empty()) bytes = changed;
  cv::Mat picture;
  try {
    const cv::Mat raw(1, static_cast<int>(bytes.size()), CV_8UC1, const_cast<char*>(bytes.data()));
    picture = cv::imdecode(raw, cv::IMREAD_UNCHANGED);  // which also leaves the orientation alone
  } catch (const cv::Exception& error) {
    throw UserError(concat(name, ": cannot decode this ", format, ": ", one_line(error.err)));
  }
  if (picture.empty() && header.format == PictureFormat::gif) {
    throw UserError(
        concat(name, ": GIF is not read (OpenCV ", CV_VERSION, " cannot); expected PNG, JPEG, WebP, BMP, TIFF or PNM"));
  }
  LOOM_CHECK_USER(!picture.empty(), name, ": cannot decode this ", format, ": its contents are damaged");
  LOOM_CHECK_USER(picture.cols == header.width && picture.rows == header.height, name, ": the ", format, " claims ",
                  header.width, " x ", header.height, " pixels and holds ", picture.cols, " x ", picture.rows);
  LOOM_CHECK_USER(picture.depth() == CV_8U || picture.depth() == CV_16U, name, ": the ", format,
                  " has samples that are not of 8 or 16 bits");
  return picture;
}

void put_over_white(cv::Mat& picture) {
  for (int y = 0; y < picture.rows; ++y) {
    auto* pixel = picture.ptr<uint8_t>(y);
    for (int x = 0; x < picture.cols; ++x, pixel += 4) {
      const int alpha = pixel[3];
      for (int c = 0; c < 3; ++c) {
        pixel[c] = static_cast<uint8_t>((pixel[c] * alpha + 255 * (255 - alpha) + 127) / 255);
      }
    }
  }
}

// OpenCV multiplies inks by a shift that makes the result 0 to 2 too bright, 1 in most cases; white is exact.
void correct_inks(Tensor& pixels) {
  auto* value = pixels.mutable_data_ptr<uint8_t>();
  for (const uint8_t* end = value + pixels.numel(); value != end; ++value) {
    if (*value > 0 && *value < 255) --*value;
  }
}

Tensor as_tensor(cv::Mat picture, const PictureHeader& header, const PictureOptions& options) {
  if (picture.depth() == CV_16U) {
    cv::Mat narrow;
    picture.convertTo(narrow, CV_8U, 1.0 / 257);
    picture = narrow;
    if (header.grey && header.white_is_zero) cv::bitwise_not(picture, picture);
  }
  if (options.alpha_on_white && picture.channels() == 4) put_over_white(picture);
  const bool grey = header.grey || picture.channels() < 3;
  Tensor out = at::empty({picture.rows, picture.cols, grey ? 1 : 3}, at::kByte);
  cv::Mat view(picture.rows, picture.cols, grey ? CV_8UC1 : CV_8UC3, out.mutable_data_ptr());
  if (grey) {
    cv::extractChannel(picture, view, 0);
  } else {
    cv::cvtColor(picture, view, picture.channels() == 4 ? cv::COLOR_BGRA2RGB : cv::COLOR_BGR2RGB);
  }
  if (header.inks) correct_inks(out);
  return out;
}

}  // namespace

Tensor decode_pixels(std::string_view bytes, const PictureHeader& header, const std::string& name,
                     const PictureOptions& options) {
  return as_tensor(stored_pixels(bytes, header, name), header, options);
}

}  // namespace loom
