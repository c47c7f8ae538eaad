#pragma once
// One microbatch on this rank, ready to run: integers and media rows as tensors, segments as metadata.
#include <map>
#include <string>

#include "core/base/tensor.h"
#include "core/nn/context.h"

namespace loom {

// The items of one modality, in the order of their slots.
struct ItemBatch {
  Tensor media;                      // [encoder rows, media_width], compute dtype
  Partitions encoder;                // of ItemLayout, items one after another
  Partitions connector;              // "" = encoder outputs per item, "slots" = LLM slots per item
  std::vector<int64_t> permutation;  // output rows in natural order, whole batch; empty = natural already
  Tensor slots;                      // int64 [slots]: rows of the backbone that the embeddings replace
};

struct ModelBatch {
  Tensor tokens;                           // int64 [T]; slots hold 0
  Tensor loss_rows;                        // int64 [n]: rows whose next token is supervised
  Tensor targets;                          // int64 [n]; undefined when generating
  Partitions text;                         // "" = samples
  std::map<std::string, ItemBatch> items;  // by modality; absent = none in this microbatch
};

}  // namespace loom
