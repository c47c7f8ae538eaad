#pragma once
// A decoded item and what is known of it without decoding.
#include <cstdint>
#include <string>

#include "core/base/tensor.h"

namespace loom {

struct MediaInfo {
  std::string modality;  // "image", "audio", ...: the name of the encoder in the recipe
  int64_t frames = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  double seconds = 0;  // duration of clips and sounds
};

struct Media {
  MediaInfo info;
  Tensor data;  // uint8 [frames, height, width, channels] for pictures and clips; float [samples, channels] for sound
};

}  // namespace loom
