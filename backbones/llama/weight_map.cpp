// The names of Llama 3, Qwen2/2.5 and Qwen3 dense checkpoints; rules for what a model does not have match nothing.
#include "backbones/llama/weight_map.h"

namespace loom::llama {

std::vector<WeightRule> weight_rules() {
  std::vector<WeightRule> rules{{"model.embed_tokens.weight", "embed.weight"},
                                {"model.norm.weight", "head.norm.weight"},
                                {"lm_head.weight", "head.weight"}};
  const std::string layer = "model.layers.*.", block = "blocks.*.";
  const auto both = [&](const std::string& external, const std::string& ours, const std::string& part = "") {
    for (const char* kind : {".weight", ".bias"})
      rules.push_back({layer + external + kind, block + ours + kind + part});
  };
  rules.push_back({layer + "input_layernorm.weight", block + "attention_norm.weight"});
  both("self_attn.q_proj", "attention.qkv", "#q");
  both("self_attn.k_proj", "attention.qkv", "#k");
  both("self_attn.v_proj", "attention.qkv", "#v");
  both("self_attn.o_proj", "attention.out");
  rules.push_back({layer + "self_attn.q_norm.weight", block + "attention.q_norm.weight"});
  rules.push_back({layer + "self_attn.k_norm.weight", block + "attention.k_norm.weight"});
  rules.push_back({layer + "post_attention_layernorm.weight", block + "mlp_norm.weight"});
  both("mlp.gate_proj", "mlp.gate_up", "#gate");
  both("mlp.up_proj", "mlp.gate_up", "#up");
  both("mlp.down_proj", "mlp.down");
  return rules;
}

}  // namespace loom::llama
