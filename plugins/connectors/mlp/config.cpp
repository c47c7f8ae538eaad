#include "plugins/connectors/mlp/config.h"

namespace loom::mlp {

Schema schema() {
  Schema s;
  s.integer("hidden", 0, {0, 1048576}, "width between the two layers; 0 = width of the backbone");
  s.integer("merge", 1, {1, 1024}, "consecutive encoder rows that become one row of the backbone");
  s.choice("activation", "gelu", {"gelu", "gelu_tanh"}, "between the two layers");
  s.boolean("bias", true, "bias of both layers");
  s.choice("norm", "none", {"none", "layer", "rms"}, "norm of the encoder's rows, before they are merged");
  return s;
}

Config read_config(const ConfigValue& value, const ConnectorArgs& args) {
  Config c;
  c.in_width = args.in_width;
  c.out_width = args.out_width;
  c.hidden = value.get_int("hidden");
  if (c.hidden == 0) c.hidden = args.out_width;
  c.merge = value.get_int("merge");
  c.tanh_gelu = value.get_string("activation") == "gelu_tanh";
  c.bias = value.get_bool("bias");
  const std::string& norm = value.get_string("norm");
  c.norm = norm == "layer" ? InputNorm::layer : norm == "rms" ? InputNorm::rms : InputNorm::none;
  return c;
}

}  // namespace loom::mlp
