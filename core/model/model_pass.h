#pragma once
// What is alive between forward and backward: the tapes of the backbone's microbatch, and of the encoder passes that
// this and other microbatches are served by. Shared by the files that implement MultimodalModel.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/multimodal_model.h"

namespace loom {

// Encoder and connector of one modality, with the items of one or several microbatches.
struct MultimodalModel::Branch {
  EncoderBatch batch;
  std::unique_ptr<Tape> encoder, connector;
  std::map<std::string, int64_t> encoder_rows;  // of streams that the connector reads
  bool need_grad = false;
  // By landing, then by target: embeddings on their way to the backbone's ranks, and their gradients on the way back.
  std::vector<std::map<size_t, MovingRows>> embeddings, gradients;

  size_t landing(size_t microbatch) const;  // which of the batch's
};

// By modality and pass.
struct MultimodalModel::OpenPasses {
  std::map<std::pair<std::string, size_t>, Branch> branches;
};

// One microbatch.
struct MultimodalModel::Pass {
  explicit Pass(OpenPasses& passes) : open(passes) {}

  OpenPasses& open;
  size_t microbatch = 0;
  std::map<std::string, Branch*> branches;  // that serve it
  std::map<std::string, int64_t> rows;      // of its embeddings here
  std::vector<Branch*> begun;               // that ran before its backbone
  std::unique_ptr<Tape> backbone;
};

// The last output, or the first input, of that name among a component's units; null when there is none.
const StreamDecl* output_of(const BoundComponent& component, std::string_view name);
const StreamDecl* input_of(const BoundComponent& component, std::string_view name);
// Streams that a component reads before any of its units writes them.
std::vector<StreamDecl> external_inputs(const BoundComponent& component);
Tensor zero_rows(int64_t rows, int64_t width, const BoundComponent& component);

}  // namespace loom
