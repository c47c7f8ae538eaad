#pragma once
// One microbatch on this rank, ready to run: integers and media rows as tensors, segments as metadata, and the routes
// along which rows move between components.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/context.h"
#include "core/nn/tensor_parallel.h"
#include "core/reshard/row_move.h"

namespace loom {

// Where the embeddings of one microbatch's items go.
struct Landing {
  size_t microbatch = 0;
  int64_t begin = 0, rows = 0;  // of the connector's outputs on this rank
  RowMove to_backbone;          // these -> rows of the backbone's ranks, in the order of `slots`
  Tensor slots;                 // int64 [embeddings that land here]: rows of the backbone's stream
};

// The items of one modality that go through encoder and connector in one pass: of one microbatch, or of several.
struct EncoderBatch {
  std::string modality;
  size_t pass = 0;                                   // the microbatch that it begins with
  Tensor media;                                      // [encoder rows here, media_width], compute dtype
  Partitions encoder;                                // of ItemLayout, items one after another
  Partitions connector;                              // "" = encoder outputs per item, "slots" = LLM slots per item
  GroupPartitions encoder_groups, connector_groups;  // the same rows in tensor groups; empty without tp
  RowMove to_connector;           // encoder outputs, in the encoder's order -> natural order, at the connector
  std::vector<Landing> landings;  // of the microbatches with items, ascending
};

struct ModelBatch {
  Tensor tokens;     // int64 [T]; slots hold 0
  Tensor loss_rows;  // int64 [n]: rows whose next token is supervised
  Tensor targets;    // int64 [n]; undefined when generating
  Partitions text;   // "" = samples; the name of a stream = its rows per sample, for BridgeMode::stream
  GroupPartitions text_groups;
  std::vector<int64_t> group_loss_rows;  // of a dry run, which cannot ask: loss rows by member of the tensor group
  size_t microbatch = 0;
  // Passes to run before the backbone; on several ranks those that any rank takes part in, if need be without rows
  // here.
  std::vector<EncoderBatch> encode;
  // Of the modalities whose items any rank has in this microbatch: their pass, which has been run by now.
  std::map<std::string, size_t> items;

  // The pass of a modality that begins here, and its landing in this microbatch. InternalError when there is none.
  const EncoderBatch& pass(const std::string& modality) const;
  const Landing& landing(const std::string& modality) const;
};

// The same with every tensor on this device.
ModelBatch to_device(ModelBatch batch, c10::Device device);

}  // namespace loom
