// OpenCV hides truncated JPEGs and throws on empty files; both become one line here.
#include "core/data/picture.h"

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/file.h"

namespace loom {

Media read_picture(const std::string& path, const std::string& modality) {
  const std::string bytes = read_text(path);
  LOOM_CHECK_USER(!bytes.empty(), path, ": the file is empty; expected a picture");
  cv::Mat picture;
  try {
    const cv::Mat raw(1, static_cast<int>(bytes.size()), CV_8UC1, const_cast<char*>(bytes.data()));
    picture = cv::imdecode(raw, cv::IMREAD_ANYCOLOR);
  } catch (const cv::Exception& error) {
    throw UserError(concat(path, ": cannot decode the picture: ", error.err));
  }
  LOOM_CHECK_USER(!picture.empty(), path, ": not a picture that can be decoded (PNG, JPEG, WebP, BMP, TIFF, PNM)");
  if (picture.channels() == 3) cv::cvtColor(picture, picture, cv::COLOR_BGR2RGB);
  Media media;
  media.info.modality = modality;
  media.info.height = picture.rows;
  media.info.width = picture.cols;
  media.info.channels = picture.channels();
  const cv::Mat whole = picture.isContinuous() ? picture : picture.clone();
  media.data = at::from_blob(whole.data, {1, whole.rows, whole.cols, whole.channels()}, at::kByte).clone();
  return media;
}

}  // namespace loom
