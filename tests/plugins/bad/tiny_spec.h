#pragma once
// A spec that is never constructed from; enough for the loader.
#include <string>

#include "plugins/sdk/plugin.h"

inline loom::ComponentSpec tiny_encoder(const std::string& name) {
  loom::ComponentSpec spec;
  spec.name = name;
  spec.kind = loom::ComponentKind::encoder;
  spec.doc = "a fixture";
  spec.capabilities.modality = "image";
  spec.schema.integer("width", 8, {1, 64}, "columns");
  spec.encoder = [](const loom::ConfigValue&, loom::Declarer) { return std::shared_ptr<loom::Encoder>(); };
  return spec;
}
