// Token counts of encoders are step functions of the size, and not always monotone ones (sides are rounded to patches),
// so a bisection that finds nothing is followed by a scan.
#include "core/data/shrink.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/nn/resize.h"

namespace loom {
namespace {

constexpr int kHalvings = 40;  // of the area's factor: finer than one pixel of the largest picture
constexpr int kScanned = 128;  // factors, evenly spaced in their logarithm
constexpr double kSmallest = 1e-6;

bool is_picture(const MediaInfo& info) { return info.height > 0 && info.width > 0; }

int64_t scaled(int64_t length, double factor) {
  return std::clamp<int64_t>(std::llround(static_cast<double>(length) * factor), 1, length);
}

std::vector<MediaInfo> scaled(std::vector<MediaInfo> infos, double area) {
  for (MediaInfo& info : infos) {
    if (!is_picture(info)) continue;
    info.height = scaled(info.height, std::sqrt(area));
    info.width = scaled(info.width, std::sqrt(area));
  }
  return infos;
}

}  // namespace

std::optional<std::vector<MediaInfo>> shrink_media(
    const std::vector<MediaInfo>& infos, const std::function<FitVerdict(const std::vector<MediaInfo>&)>& judge) {
  if (std::none_of(infos.begin(), infos.end(), is_picture)) return std::nullopt;
  double low = 0, high = 1;
  std::optional<std::vector<MediaInfo>> best;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    std::vector<MediaInfo> sizes = scaled(infos, middle);
    const FitVerdict verdict = judge(sizes);
    if (verdict == FitVerdict::fits) best = std::move(sizes);
    (verdict == FitVerdict::too_long ? high : low) = middle;
  }
  for (int i = 1; i <= kScanned && !best.has_value(); ++i) {
    std::vector<MediaInfo> sizes = scaled(infos, std::pow(kSmallest, static_cast<double>(i) / kScanned));
    if (judge(sizes) == FitVerdict::fits) best = std::move(sizes);
  }
  return best;
}

bool same_size(const MediaInfo& a, const MediaInfo& b) { return a.height == b.height && a.width == b.width; }

Media resize_media(const Media& media, const MediaInfo& info) {
  LOOM_CHECK(media.data.dim() == 4, "media of ", media.data.dim(), " dimensions");
  std::vector<Tensor> frames;
  for (int64_t f = 0; f < media.data.size(0); ++f)
    frames.push_back(resize_picture(media.data[f], info.height, info.width));
  return {info, at::stack(frames)};
}

}  // namespace loom
