#include "core/data/pass_builder.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/data/stream_builder.h"
#include "core/step/placement.h"

namespace loom {
namespace {

using Samples = std::vector<const PreparedSample*>;

// The items of one microbatch within the pass, and where they go.
struct InMicrobatch {
  size_t microbatch = 0;
  size_t begin = 0, items = 0;  // in the list of the pass
  SlotRows slots;
};

// Are a modality's embeddings rows of a stream of their own?
bool streamed(const StepPlan& plan, const PlacedItem& item, const std::string& modality, const BatchModality& use) {
  const Verdict& verdict = plan.samples.at(static_cast<size_t>(item.sample));
  const bool out = verdict.items.at(static_cast<size_t>(item.item)).begin < 0;
  LOOM_CHECK(out != use.stream.empty(), "the ", modality, " items of ", verdict.name,
             out ? " are not in the text, and its embeddings are no stream"
                 : concat(" are in the text, and its embeddings are the stream ", use.stream));
  return out;
}

SlotRows slots_of(const StepPlan& plan, const MicrobatchPlan& microbatch, const std::vector<PlacedItem>& items,
                  const std::string& modality, const BatchModality& use, int rank) {
  bool own_stream = false;
  for (const PlacedItem& item : items) own_stream = streamed(plan, item, modality, use);
  const std::vector<StreamItem> text = text_items(plan, microbatch);
  if (!own_stream) return slots_in_text(plan, microbatch, items, text, rank);
  return slots_in_stream(plan, microbatch, items, embedding_items(plan, microbatch, text, modality), rank);
}

// The media rows of this rank's pieces.
Tensor build_media(const StepPlan& plan, const std::vector<PlacedItem>& items, const Samples& samples,
                   const ItemStreams& streams, const BatchModality& use, int rank) {
  std::vector<Tensor> media;
  for (const LocalPiece& local : pieces_on(streams.encoder, rank)) {
    if (local.piece.rows == 0) continue;
    const PlacedItem& placed = items[local.item];
    const PreparedSample& sample = contents_of(plan, samples, placed.sample, rank);
    const Tensor& rows = sample.media.at(static_cast<size_t>(placed.item));
    const int64_t begin = local.piece.begin - sample.first_row(static_cast<size_t>(placed.item));
    LOOM_CHECK(rows.defined() && begin >= 0 && rows.size(0) >= begin + local.piece.rows, "rank ", rank,
               " lacks media rows of ", plan.samples[static_cast<size_t>(placed.sample)].name);
    media.push_back(rows.narrow(0, begin, local.piece.rows));
  }
  if (media.empty()) return at::empty({0, use.encoder->media_width()}, at::TensorOptions(use.compute));
  return at::cat(media).to(use.compute);
}

int64_t slots_on(const std::vector<StreamItem>& items, int rank) {
  int64_t rows = 0;
  for (const PlacedRows& run : placed_rows(items, "slots")) rows += run.rank == rank ? run.rows : 0;
  return rows;
}

}  // namespace

Tensor longs(const std::vector<int64_t>& values) { return at::tensor(at::IntArrayRef(values), at::kLong); }

const PreparedSample& contents_of(const StepPlan& plan, const Samples& samples, int64_t index, int rank) {
  const PreparedSample* sample = samples.at(static_cast<size_t>(index));
  LOOM_CHECK(sample != nullptr, "rank ", rank, " has no contents of ", plan.samples[static_cast<size_t>(index)].name);
  return *sample;
}

EncoderBatch build_pass(const StepPlan& plan, const EncoderPass& pass, const Samples& samples, const BatchModality& use,
                        int rank) {
  const std::string& modality = pass.modality;
  const WorldLayout& layout = plan.layout;
  std::vector<PlacedItem> items;
  std::vector<InMicrobatch> parts;
  for (size_t m = pass.first; m <= pass.last; ++m) {
    const auto found = plan.microbatches[m].items.find(modality);
    if (found == plan.microbatches[m].items.end() || found->second.empty()) continue;
    const std::vector<PlacedItem>& some = found->second;
    parts.push_back({m, items.size(), some.size(), slots_of(plan, plan.microbatches[m], some, modality, use, rank)});
    items.insert(items.end(), some.begin(), some.end());
  }
  ItemStreams streams = item_streams(plan, items, modality, use);
  const auto connector_of = [&](const InMicrobatch& part) {
    const auto first = streams.connector.begin() + static_cast<std::ptrdiff_t>(part.begin);
    return std::vector<StreamItem>(first, first + static_cast<std::ptrdiff_t>(part.items));
  };
  if (runs_at_slots(use.widths, layout.connector(modality).side)) {
    for (const InMicrobatch& part : parts) {
      std::vector<StreamItem> moved = connector_of(part);
      move_connector_to_slots(moved, part.slots.runs);
      std::move(moved.begin(), moved.end(), streams.connector.begin() + static_cast<std::ptrdiff_t>(part.begin));
    }
  }

  EncoderBatch out;
  out.modality = modality;
  out.pass = pass.first;
  out.media = build_media(plan, items, samples, streams, use, rank);
  out.encoder = local_partitions(streams.encoder, rank);
  out.connector = local_partitions(streams.connector, rank);
  if (const int tp = layout.encoder(modality).tp; tp > 1)
    out.encoder_groups = group_partitions(streams.encoder, rank, tp);
  if (const int tp = layout.connector(modality).tp; tp > 1)
    out.connector_groups = group_partitions(streams.connector, rank, tp);
  out.to_connector = move_to_connector(streams, layout, rank);
  int64_t begin = 0;
  for (const InMicrobatch& part : parts) {
    const std::vector<StreamItem> connector = connector_of(part);
    Landing& landing = out.landings.emplace_back();
    landing.microbatch = part.microbatch;
    landing.begin = begin;
    begin += landing.rows = slots_on(connector, rank);
    landing.to_backbone = move_to_backbone(connector, part.slots, layout, rank);
    landing.slots = longs(part.slots.slots);
  }
  return out;
}

}  // namespace loom
