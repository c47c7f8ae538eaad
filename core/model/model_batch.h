#pragma once
// One microbatch on this rank, ready to run: integers and media rows as tensors, segments as metadata, and the routes
// along which rows move between components.
#include <cstdint>
#include <map>
#include <string>

#include "core/base/tensor.h"
#include "core/nn/context.h"
#include "core/nn/tensor_parallel.h"
#include "core/reshard/redistribute.h"

namespace loom {

// Rows of one component's output to rows of the next one's input.
struct RowMove {
  bool identity = true;  // equal rows in equal order on every rank
  Route route;           // elements are rows
  int64_t rows = 0;      // of the result, on this rank; read unless identity
};

// The items of one modality.
struct ItemBatch {
  Tensor media;                                      // [encoder rows here, media_width], compute dtype
  Partitions encoder;                                // of ItemLayout, items one after another
  Partitions connector;                              // "" = encoder outputs per item, "slots" = LLM slots per item
  GroupPartitions encoder_groups, connector_groups;  // the same rows in tensor groups; empty without tp
  RowMove to_connector;  // encoder outputs, in the encoder's order -> natural order, at the connector
  RowMove to_backbone;   // embeddings -> rows of the backbone's ranks, in the order of `slots`
  Tensor slots;          // int64 [embeddings that land here]: rows of the backbone's stream
};

struct ModelBatch {
  Tensor tokens;     // int64 [T]; slots hold 0
  Tensor loss_rows;  // int64 [n]: rows whose next token is supervised
  Tensor targets;    // int64 [n]; undefined when generating
  Partitions text;   // "" = samples; the name of a stream = its rows per sample, for BridgeMode::stream
  GroupPartitions text_groups;
  std::vector<int64_t> group_loss_rows;  // of a dry run, which cannot ask: loss rows by member of the tensor group
  // By modality. On several ranks: those that any rank has in this microbatch, if need be without rows here.
  std::map<std::string, ItemBatch> items;
};

// The same with every tensor on this device.
ModelBatch to_device(ModelBatch batch, c10::Device device);

}  // namespace loom
