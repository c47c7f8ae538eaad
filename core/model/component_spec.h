#pragma once
// A spec is data plus a factory: the core validates a recipe, documents (`plugin info`) and plans from it without
// constructing anything. Plugins hand specs to a Registrar; the registry remembers who owns each.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/model/component.h"
#include "core/nn/declare.h"

namespace loom {

enum class ComponentKind { encoder = 1, connector, backbone };

const char* kind_name(ComponentKind kind);  // "encoder", ...

struct Capabilities {
  std::string modality;                         // of an encoder: what it takes by default ("image")
  std::vector<std::string> axes{"dp", "fsdp"};  // what it can be split along: dp, fsdp, tp, sp, ep, pp
  std::vector<std::string> dtypes{"fp32", "fp64", "bf16"};
  bool splits_items = false;  // layout() gives cuts
};

// External checkpoint name <-> ours, `*` stands for a number: {"model.layers.*.mlp.up_proj.weight",
// "blocks.*.mlp.gate_up.weight#up"}.
struct WeightRule {
  std::string external;
  std::string ours;  // "#part" names a part of a fused parameter
};

struct ConnectorArgs {
  int64_t in_width = 0;   // of the encoder
  int64_t out_width = 0;  // of the backbone
};

struct BackboneArgs {
  int64_t vocab = 0;  // rows the tokenizer needs
};

struct ComponentSpec {
  std::string name;  // type name in recipes: "vit"
  ComponentKind kind = ComponentKind::encoder;
  std::string doc;  // one line
  Schema schema;
  Capabilities capabilities;
  std::vector<WeightRule> weights;
  // Exactly the one of its kind is set. `config` has passed the schema.
  std::function<std::shared_ptr<Encoder>(const ConfigValue& config, Declarer d)> encoder;
  std::function<std::shared_ptr<Connector>(const ConfigValue& config, const ConnectorArgs& args, Declarer d)> connector;
  std::function<std::shared_ptr<Backbone>(const ConfigValue& config, const BackboneArgs& args, Declarer d)> backbone;
};

}  // namespace loom
