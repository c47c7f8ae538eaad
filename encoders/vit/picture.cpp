#include "encoders/vit/picture.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/nn/resize.h"

namespace loom::vit {
namespace {

int64_t scaled(int64_t length, double scale, int64_t at_least, int64_t at_most) {
  return std::clamp<int64_t>(std::llround(static_cast<double>(length) * scale), at_least, at_most);
}

Tensor with_channels(const Tensor& pixels_HWC, int64_t channels) {
  const int64_t found = pixels_HWC.size(2);
  if (found == channels) return pixels_HWC;
  if (found == 1) return pixels_HWC.expand({-1, -1, channels});
  const Tensor luma = at::tensor({0.299F, 0.587F, 0.114F});
  return (pixels_HWC * luma).sum(2, true).round();
}

// A side in whole units, one at least.
int64_t in_units(int64_t length, double scale, const Config& config) {
  return scaled(length, scale / static_cast<double>(config.unit()), 1, config.image_size / config.unit()) *
         config.unit();
}

}  // namespace

Size fitted_size(int64_t height, int64_t width, const Config& config) {
  if (config.fit != Fit::native) return {config.image_size, config.image_size};
  const double scale = static_cast<double>(config.image_size) / static_cast<double>(std::max(height, width));
  return {in_units(height, std::min(1.0, scale), config), in_units(width, std::min(1.0, scale), config)};
}

Tensor fit_picture(const Tensor& pixels, const Config& config) {
  const int64_t size = config.image_size, height = pixels.size(0), width = pixels.size(1);
  const Tensor whole = with_channels(pixels.to(at::kFloat), config.channels);
  if (config.fit == Fit::native) {
    const Size fitted = fitted_size(height, width, config);
    return resize_picture(whole, fitted.height, fitted.width);
  }
  if (config.fit == Fit::squash) return resize_picture(whole, size, size);
  if (config.fit == Fit::crop) {
    const double scale = static_cast<double>(size) / static_cast<double>(std::min(height, width));
    const int64_t h = scaled(height, scale, size, INT32_MAX), w = scaled(width, scale, size, INT32_MAX);
    return resize_picture(whole, h, w).narrow(0, (h - size) / 2, size).narrow(1, (w - size) / 2, size);
  }
  const double scale = static_cast<double>(size) / static_cast<double>(std::max(height, width));
  const int64_t h = scaled(height, scale, 1, size), w = scaled(width, scale, 1, size);
  Tensor square = at::full({size, size, config.channels}, 255 * config.mean, at::kFloat);  // zero once normalised
  square.narrow(0, (size - h) / 2, h).narrow(1, (size - w) / 2, w).copy_(resize_picture(whole, h, w));
  return square;
}

Tensor to_patches(const Tensor& pixels_HWC, const Config& config) {
  const int64_t patch = config.patch, rows = pixels_HWC.size(0) / patch, columns = pixels_HWC.size(1) / patch;
  const Tensor pixels = (pixels_HWC / 255.0 - config.mean) / config.deviation;
  // [y, py, x, px, c] -> [y, x | c, py, px]: the order of a convolution's weight, so that pretrained patch embeddings
  // fit.
  return pixels.reshape({rows, patch, columns, patch, config.channels})
      .permute({0, 2, 4, 1, 3})
      .reshape({rows * columns, config.patch_width()});
}

Tensor from_patches(const Tensor& rows, const Size& size, const Config& config) {
  const int64_t patch = config.patch;
  const Tensor pixels = rows.to(at::kFloat)
                            .reshape({size.height / patch, size.width / patch, config.channels, patch, patch})
                            .permute({0, 3, 1, 4, 2})
                            .reshape({size.height, size.width, config.channels});
  return ((pixels * config.deviation + config.mean) * 255.0).round().clamp(0, 255).to(at::kByte);
}

}  // namespace loom::vit
