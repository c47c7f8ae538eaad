#pragma once
// The streams of a microbatch over all ranks, as metadata: samples in the backbone, items in their encoder and at their
// connector, and the moves of rows between them. Every rank builds the same lists and takes its own part of them, so
// whether a move is needed at all is known to all alike.
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/batch_builder.h"
#include "core/model/model_batch.h"
#include "core/step/placement.h"

namespace loom {

// The samples of a microbatch in the backbone, one segment each.
std::vector<StreamItem> text_items(const StepPlan& plan, const MicrobatchPlan& microbatch);

// Items of one modality, in the order of the plan's lists.
struct ItemStreams {
  std::vector<StreamItem> encoder;    // the encoder's layouts
  std::vector<StreamItem> outputs;    // "" = its outputs, "slots" = LLM slots; on the ranks of the encoder's pieces
  std::vector<StreamItem> connector;  // the same where the connector runs
};

// PluginError when the encoder's layout of an item contradicts itself, or has no cut where the plan has one. The
// connector runs with the encoder.
ItemStreams item_streams(const StepPlan& plan, const std::vector<PlacedItem>& items, const std::string& modality,
                         const BatchModality& use);

// Encoder outputs, in the encoder's order, to natural order at the connector.
RowMove move_to_connector(const ItemStreams& streams, const WorldLayout& layout, int rank);

// A stream of the backbone that consists of a modality's embeddings: one segment per sample of `text`, whose rows are
// the slots of all the sample's items, divided evenly over the sample's pieces.
std::vector<StreamItem> embedding_items(const StepPlan& plan, const MicrobatchPlan& microbatch,
                                        const std::vector<StreamItem>& text, const std::string& modality);

// Where a modality's slots lie in the backbone.
struct SlotRows {
  std::vector<RowRun> runs;    // of all ranks: slots (global, in list order) -> rows of the result
  std::vector<int64_t> slots;  // of this rank: row of the backbone's stream for each row of the result
};
// Slots in rows of the text; the result is compact, in list order.
SlotRows slots_in_text(const StepPlan& plan, const MicrobatchPlan& microbatch, const std::vector<PlacedItem>& items,
                       const std::vector<StreamItem>& text, int rank);
// Slots that are rows of `stream` (embedding_items); the result is that stream.
SlotRows slots_in_stream(const StepPlan& plan, const MicrobatchPlan& microbatch, const std::vector<PlacedItem>& items,
                         const std::vector<StreamItem>& stream, int rank);
// Pieces at the connector that lie where these slots do: `runs` are those of the items, in list order.
void move_connector_to_slots(std::vector<StreamItem>& connector, const std::vector<RowRun>& runs);
// Embeddings at the connector to rows of the backbone's ranks.
RowMove move_to_backbone(const std::vector<StreamItem>& connector, const SlotRows& slots, const WorldLayout& layout,
                         int rank);

}  // namespace loom
