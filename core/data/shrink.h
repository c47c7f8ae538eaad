#pragma once
// Pictures made smaller until their sample fits (over_long: shrink_media): all of a sample by one factor, the largest
// that will do.
#include <functional>
#include <optional>
#include <vector>

#include "core/step/media.h"

namespace loom {

enum class FitVerdict { fits = 1, too_long, too_small };

// New sizes of `infos`, or nothing when no factor below 1 fits. `judge` says what a sample of such sizes would be;
// items that are no pictures keep their size. Pictures keep their shape and at least one pixel.
std::optional<std::vector<MediaInfo>> shrink_media(
    const std::vector<MediaInfo>& infos, const std::function<FitVerdict(const std::vector<MediaInfo>&)>& judge);

bool same_size(const MediaInfo& a, const MediaInfo& b);
// Every frame resized to what `info` says.
Media resize_media(const Media& media, const MediaInfo& info);

}  // namespace loom
