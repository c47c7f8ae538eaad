#include "encoders/vit/config.h"

#include <cmath>

#include "core/base/error.h"

namespace loom::vit {

Schema schema() {
  Schema s;
  s.integer("image_size", 224, {1, 16384}, "side of the square picture, in pixels; the longest side with fit: native");
  s.integer("patch", 16, {1, 1024}, "side of a patch, in pixels; divides image_size");
  s.integer("channels", 1, {1, 64}, "channels of the picture: 1 = grey, 3 = RGB");
  s.choice("fit", "crop", {"crop", "squash", "pad", "native"},
           "other sizes: short side resized and centre cut out, squashed, padded, or kept in shape");
  s.integer("multiple", 1, {1, 64}, "fit: native: patches per side are a multiple of this, for connectors that merge");
  s.integer("width", 384, {1, 65536}, "columns of the stream");
  s.integer("depth", 12, {1, 1024}, "number of blocks");
  s.integer("heads", 6, {1, 1024}, "attention heads; divide width");
  s.number("mlp_ratio", 4.0, {0.01, 64}, "hidden width of the MLP over width; not used when hidden is given");
  s.integer("hidden", 0, {0, 1048576}, "hidden width of the MLP; 0 = mlp_ratio * width");
  s.number("dropout", 0.0, {0, 0.99}, "after the embedding and on both residual branches");
  s.choice("pooling", "none", {"none"}, "how patches become outputs: none = one output per patch");
  s.choice("gelu", "exact", {"exact", "tanh"}, "form of the GELU");
  s.number("norm_eps", 1e-6, {0, 1}, "epsilon of the layer norms");
  s.number("mean", 0.5, {-10, 10}, "subtracted from pixels in [0, 1]");
  s.number("std", 0.5, {1e-6, 10}, "divides them afterwards");
  return s;
}

Config read_config(const ConfigValue& value) {
  Config c;
  c.image_size = value.get_int("image_size");
  c.patch = value.get_int("patch");
  c.channels = value.get_int("channels");
  c.width = value.get_int("width");
  c.depth = value.get_int("depth");
  c.heads = value.get_int("heads");
  c.hidden = value.get_int("hidden");
  if (c.hidden == 0)
    c.hidden = std::max<int64_t>(1, std::llround(value.get_number("mlp_ratio") * static_cast<double>(c.width)));
  const std::string& fit = value.get_string("fit");
  c.fit = fit == "crop" ? Fit::crop : fit == "squash" ? Fit::squash : fit == "pad" ? Fit::pad : Fit::native;
  c.multiple = value.get_int("multiple");
  c.dropout = value.get_number("dropout");
  c.norm_eps = value.get_number("norm_eps");
  c.tanh_gelu = value.get_string("gelu") == "tanh";
  c.mean = value.get_number("mean");
  c.deviation = value.get_number("std");
  const ConfigValue &patch = value.at("patch"), &heads = value.at("heads");
  LOOM_CHECK_USER(c.image_size % c.patch == 0, patch.mark.str(), ": ", patch.path, ": ", c.patch,
                  " does not divide image_size ", c.image_size);
  const ConfigValue& multiple = value.at("multiple");
  LOOM_CHECK_USER(c.multiple == 1 || c.fit == Fit::native, multiple.mark.str(), ": ", multiple.path,
                  ": only fit: native has a multiple; found fit: ", fit);
  LOOM_CHECK_USER(c.unit() <= c.image_size, multiple.mark.str(), ": ", multiple.path, ": ", c.multiple, " patches of ",
                  c.patch, " pixels are more than image_size ", c.image_size);
  LOOM_CHECK_USER(c.width % c.heads == 0, heads.mark.str(), ": ", heads.path, ": ", c.heads,
                  " heads do not divide width ", c.width);
  return c;
}

}  // namespace loom::vit
