#pragma once
// What a recipe may say about a llama-like decoder, and the same as a struct.
#include <cstdint>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/model/component_spec.h"

namespace loom::llama {

struct Config {
  int64_t vocab = 0;
  int64_t width = 512;
  int64_t depth = 8;
  int64_t heads = 8;
  int64_t kv_heads = 8;
  int64_t head_dim = 64;
  int64_t ffn = 1376;
  double rope_theta = 10000;
  double norm_eps = 1e-6;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;
  bool tied = true;
  double dropout = 0;
};

Schema schema();
// Fills in what depends on other values and on the tokenizer. UserError with file and line when values do not go
// together.
Config read_config(const ConfigValue& value, const BackboneArgs& args);

}  // namespace loom::llama
