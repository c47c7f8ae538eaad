// The names of SigLIP vision towers, which have exactly these parts. Their patch embedding is a convolution [width,
// channels, p, p]: the same numbers in the same order as ours.
#include "encoders/vit/weight_map.h"

namespace loom::vit {

std::vector<WeightRule> weight_rules() {
  std::vector<WeightRule> rules;
  const auto both = [&](const std::string& external, const std::string& ours, const std::string& part = "") {
    for (const char* kind : {".weight", ".bias"}) {
      rules.push_back({"vision_model." + external + kind, ours + kind + (part.empty() ? "" : "#" + part)});
    }
  };
  both("embeddings.patch_embedding", "embed.patch");
  rules.push_back({"vision_model.embeddings.position_embedding.weight", "embed.position.weight"});
  const std::string layer = "encoder.layers.*.", block = "blocks.*.";
  both(layer + "layer_norm1", block + "norm1");
  for (const char* part : {"q", "k", "v"}) {
    both(layer + "self_attn." + part + "_proj", block + "attention.qkv", part);
  }
  both(layer + "self_attn.out_proj", block + "attention.out");
  both(layer + "layer_norm2", block + "norm2");
  both(layer + "mlp.fc1", block + "mlp.fc1");
  both(layer + "mlp.fc2", block + "mlp.fc2");
  both("post_layernorm", "norm");
  return rules;
}

}  // namespace loom::vit
