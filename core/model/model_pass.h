#pragma once
// What is alive between forward and backward of one microbatch: the tapes of all components. Shared by the files that
// implement MultimodalModel.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/multimodal_model.h"

namespace loom {

// Encoder and connector of one modality in one microbatch.
struct MultimodalModel::Branch {
  std::unique_ptr<Tape> encoder, connector;
  std::map<std::string, int64_t> encoder_rows;  // of streams that the connector reads
  std::vector<Tensor> embeddings;               // by target, on the backbone's ranks
  int64_t connector_rows = 0;
  bool need_grad = false;
  StreamMap gradients;  // of the connector's output streams
};

struct MultimodalModel::Pass {
  std::map<std::string, Branch> branches;
  std::unique_ptr<Tape> backbone;

  template <class Visit>
  void each(const Visit& visit) {
    for (auto& [name, branch] : branches) {
      visit(*branch.encoder);
      visit(*branch.connector);
    }
    visit(*backbone);
  }
};

// The last output, or the first input, of that name among a component's units; null when there is none.
const StreamDecl* output_of(const BoundComponent& component, std::string_view name);
const StreamDecl* input_of(const BoundComponent& component, std::string_view name);

}  // namespace loom
