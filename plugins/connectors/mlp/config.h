#pragma once
// What a recipe may say about the projector, and the same as a struct.
#include <cstdint>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/model/component_spec.h"

namespace loom::mlp {

enum class InputNorm { none = 1, layer, rms };

struct Config {
  int64_t in_width = 0, out_width = 0;
  int64_t hidden = 0;
  int64_t merge = 1;
  bool tanh_gelu = false;
  bool bias = true;
  InputNorm norm = InputNorm::none;
};

Schema schema();
Config read_config(const ConfigValue& value, const ConnectorArgs& args);

}  // namespace loom::mlp
