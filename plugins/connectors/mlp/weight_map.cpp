// The names of LLaVA-1.5 and LLaVA-OneVision.
#include "plugins/connectors/mlp/weight_map.h"

namespace loom::mlp {

std::vector<WeightRule> weight_rules() {
  std::vector<WeightRule> rules;
  for (const char* kind : {"weight", "bias"}) {
    rules.push_back({std::string("multi_modal_projector.linear_1.") + kind, std::string("project.fc1.") + kind});
    rules.push_back({std::string("multi_modal_projector.linear_2.") + kind, std::string("project.fc2.") + kind});
  }
  return rules;
}

}  // namespace loom::mlp
