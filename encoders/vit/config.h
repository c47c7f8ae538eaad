#pragma once
// What a recipe may say about a ViT, and the same as a struct.
#include <cstdint>

#include "core/config/config_value.h"
#include "core/config/schema.h"

namespace loom::vit {

// How a picture becomes one of image_size; `native` keeps its shape and only limits its size.
enum class Fit { crop = 1, squash, pad, native };

struct Config {
  int64_t image_size = 224;
  int64_t patch = 16;
  int64_t channels = 1;
  int64_t width = 384;
  int64_t depth = 12;
  int64_t heads = 6;
  int64_t hidden = 0;  // of the MLP
  Fit fit = Fit::crop;
  int64_t multiple = 1;  // of fit: native
  double dropout = 0;
  double norm_eps = 1e-6;
  bool tanh_gelu = false;
  double mean = 0.5, deviation = 0.5;  // of pixels scaled to [0, 1]

  int64_t side() const { return image_size / patch; }  // patches per side, and of the position table
  int64_t unit() const { return patch * multiple; }    // sides of a native picture are multiples of it
  int64_t patch_width() const { return patch * patch * channels; }
};

Schema schema();
// UserError with file and line when values do not go together.
Config read_config(const ConfigValue& value);

}  // namespace loom::vit
