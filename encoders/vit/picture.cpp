#include "encoders/vit/picture.h"

#include <cmath>

#include <ATen/ATen.h>

namespace loom::vit {
namespace {

int64_t scaled(int64_t length, double scale, int64_t at_least, int64_t at_most) {
  return std::clamp<int64_t>(std::llround(static_cast<double>(length) * scale), at_least, at_most);
}

Tensor resized(const Tensor& pixels_HWC, int64_t height, int64_t width) {
  if (pixels_HWC.size(0) == height && pixels_HWC.size(1) == width) return pixels_HWC;
  const Tensor planes = pixels_HWC.permute({2, 0, 1}).unsqueeze(0).contiguous();
  const Tensor out = at::_upsample_bicubic2d_aa(planes, {height, width}, false);
  return out.squeeze(0).permute({1, 2, 0}).round().clamp(0, 255);
}

Tensor with_channels(const Tensor& pixels_HWC, int64_t channels) {
  const int64_t found = pixels_HWC.size(2);
  if (found == channels) return pixels_HWC;
  if (found == 1) return pixels_HWC.expand({-1, -1, channels});
  const Tensor luma = at::tensor({0.299F, 0.587F, 0.114F});
  return (pixels_HWC * luma).sum(2, true).round();
}

}  // namespace

Tensor fit_picture(const Tensor& pixels, const Config& config) {
  const int64_t size = config.image_size, height = pixels.size(0), width = pixels.size(1);
  const Tensor whole = with_channels(pixels.to(at::kFloat), config.channels);
  if (config.fit == Fit::squash) return resized(whole, size, size);
  if (config.fit == Fit::crop) {
    const double scale = static_cast<double>(size) / static_cast<double>(std::min(height, width));
    const int64_t h = scaled(height, scale, size, INT32_MAX), w = scaled(width, scale, size, INT32_MAX);
    return resized(whole, h, w).narrow(0, (h - size) / 2, size).narrow(1, (w - size) / 2, size);
  }
  const double scale = static_cast<double>(size) / static_cast<double>(std::max(height, width));
  const int64_t h = scaled(height, scale, 1, size), w = scaled(width, scale, 1, size);
  Tensor square = at::full({size, size, config.channels}, 255 * config.mean, at::kFloat);  // zero once normalised
  square.narrow(0, (size - h) / 2, h).narrow(1, (size - w) / 2, w).copy_(resized(whole, h, w));
  return square;
}

}  // namespace loom::vit
