// Nothing here looks at a tensor. Moves are made of runs of rows over all ranks; a move whose runs are equal on both
// sides is the identity on every rank.
#include "core/data/stream_builder.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {
namespace {

const Verdict& verdict_of(const StepPlan& plan, int64_t sample) { return plan.samples.at(static_cast<size_t>(sample)); }

const ItemPlace& place_of(const StepPlan& plan, const PlacedItem& item) {
  return verdict_of(plan, item.sample).items.at(static_cast<size_t>(item.item));
}

[[noreturn]] void refuse_layout(const std::string& modality, const BatchModality& use, const Verdict& verdict,
                                const std::string& what) {
  const std::string origin = use.origin.empty() ? "" : concat(" (", use.origin, ")");
  throw PluginError(concat("encoders.", modality, origin, ": layout() of an item of ", verdict.name, ": ", what));
}

// All items must agree on the axes of a partition, or its positions are no table.
void check_axes(const ItemLayout& layout, const std::string& modality, const BatchModality& use, const Verdict& verdict,
                std::map<std::string, int64_t>& axes) {
  for (const auto& [name, part] : layout.partitions) {
    const auto [known, inserted] = axes.emplace(name, part.position_axes);
    if (known->second == part.position_axes) continue;
    refuse_layout(modality, use, verdict,
                  concat("partition '", name, "' has ", part.position_axes, " position axes, an item before it had ",
                         known->second));
  }
}

// A plan may cut an item only where its verdict says so; and the layout must still say so, too.
void check_cut(const ItemLayout& layout, const ItemPlace& place, const BatchModality& use, const Verdict& verdict,
               int64_t row) {
  const bool listed = std::binary_search(place.cuts.begin(), place.cuts.end(), row);
  if (listed && legal_cut(layout, row)) return;
  const std::string what = concat("the plan divides it at row ", row, " of ", place.meta.tokens);
  if (listed) refuse_layout(place.modality, use, verdict, concat(what, ", which the layout does not allow any more"));
  if (place.cuts.empty()) refuse_layout(place.modality, use, verdict, concat(what, "; expected it whole"));
  const int64_t nearest = *std::min_element(place.cuts.begin(), place.cuts.end(), [&](int64_t a, int64_t b) {
    return std::abs(a - row) < std::abs(b - row);
  });
  refuse_layout(place.modality, use, verdict, concat(what, "; expected one of its legal cuts, nearest ", nearest));
}

// The encoder's pieces in rows of its outputs.
std::vector<Piece> output_pieces(const StreamItem& item, const ItemPlace& place, const Verdict& verdict,
                                 const BatchModality& use) {
  if (item.pieces.size() == 1) return {{item.pieces.front().rank, 0, place.meta.outputs}};
  const std::string mistake = outputs_mistake(item.layout, place.meta, use.outputs);
  if (!mistake.empty()) refuse_layout(place.modality, use, verdict, mistake);
  std::vector<Piece> out;
  for (const Piece& piece : item.pieces) {
    const int64_t end = piece.begin + piece.rows;
    if (end < place.meta.tokens && end > 0) check_cut(item.layout, place, use, verdict, end);
    const int64_t row = row_at(item.layout, use.outputs, piece.begin);
    const int64_t end_row = piece.rows == 0 ? row : row_at(item.layout, use.outputs, end);
    out.push_back({piece.rank, row, end_row - row});
  }
  return out;
}

// Joins runs that continue each other; by rank and local row.
std::vector<RowRun> joined(std::vector<RowRun> runs) {
  std::stable_sort(runs.begin(), runs.end(), [](const RowRun& a, const RowRun& b) {
    return std::tie(a.rank, a.local) < std::tie(b.rank, b.local);
  });
  std::vector<RowRun> out;
  for (const RowRun& run : runs) {
    if (run.rows == 0) continue;
    if (!out.empty()) {
      RowRun& last = out.back();
      if (last.rank == run.rank && last.local + last.rows == run.local && last.global + last.rows == run.global) {
        last.rows += run.rows;
        continue;
      }
    }
    out.push_back(run);
  }
  return out;
}

bool same(const std::vector<RowRun>& a, const std::vector<RowRun>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const RowRun& x, const RowRun& y) {
    return x.rank == y.rank && x.global == y.global && x.local == y.local && x.rows == y.rows;
  });
}

bool wants_symmetric(const BridgeChoice& choice, const RowTraffic& traffic) {
  if (traffic.group == 1 || choice.path == BridgePath::exact) return false;
  return choice.path == BridgePath::symmetric ||
         static_cast<double>(traffic.busiest) >= choice.threshold * static_cast<double>(traffic.symmetric());
}

RowMove make_move(int64_t rows, std::vector<RowRun> source, std::vector<RowRun> destination, const WorldLayout& layout,
                  int rank) {
  source = joined(std::move(source));
  destination = joined(std::move(destination));
  int64_t result_rows = 0;
  for (const RowRun& run : destination) result_rows += run.rank == rank ? run.rows : 0;
  if (same(source, destination)) {
    RowMove out;
    out.rows = result_rows;
    return out;
  }
  const std::vector<Transfer> transfers = plan_transfers(row_layout(rows, source), row_layout(rows, destination));
  if (layout.bridge.path != BridgePath::exact) {
    const RowTraffic traffic = row_traffic(transfers, destination, layout.world);
    if (wants_symmetric(layout.bridge, traffic))
      return symmetric_move(transfers, traffic, result_rows, layout.world, rank);
  }
  return exact_move(transfers, result_rows, rank);
}

std::vector<RowRun> runs_of(const std::vector<StreamItem>& items, const char* partition) {
  std::vector<RowRun> out;
  for (const PlacedRows& rows : placed_rows(items, partition))
    out.push_back({rows.rank, rows.global, rows.local, rows.rows});
  return out;
}

int64_t rows_of(const std::vector<StreamItem>& items, const char* partition) {
  int64_t rows = 0;
  for (const StreamItem& item : items) rows += item.layout.partitions.find(partition)->second.rows();
  return rows;
}

// The deliberate fault: on every rank, the result's rows one further than they belong.
std::vector<RowRun> rotated(const std::vector<RowRun>& runs) {
  std::map<int, int64_t> rows;
  for (const RowRun& run : runs) rows[run.rank] += run.rows;
  std::vector<RowRun> out;
  for (const RowRun& run : runs) {
    for (int64_t i = 0; i < run.rows; ++i)
      out.push_back({run.rank, run.global + i, (run.local + i + 1) % rows[run.rank], 1});
  }
  return out;
}

// By index into StepPlan::samples: where the sample stands in the microbatch.
std::map<int64_t, size_t> sample_places(const MicrobatchPlan& microbatch) {
  std::map<int64_t, size_t> out;
  for (size_t i = 0; i < microbatch.samples.size(); ++i) out[microbatch.samples[i].sample] = i;
  return out;
}

// Calls use(rank, row of that rank's tensor, offset, count) for every run of rows [begin, begin + rows) of an item.
template <class Use>
void for_rows(const StreamItem& item, const std::vector<int64_t>& local, int64_t begin, int64_t rows, const Use& use) {
  for (size_t p = 0; p < item.pieces.size(); ++p) {
    const Piece& piece = item.pieces[p];
    const int64_t from = std::max(begin, piece.begin), to = std::min(begin + rows, piece.begin + piece.rows);
    if (from < to) use(piece.rank, local[p] + from - piece.begin, from - begin, to - from);
  }
}

}  // namespace

std::vector<StreamItem> text_items(const StepPlan& plan, const MicrobatchPlan& microbatch) {
  std::vector<StreamItem> out;
  for (const PlacedSample& placed : microbatch.samples) {
    const Verdict& verdict = verdict_of(plan, placed.sample);
    LOOM_CHECK(verdict.ok, "a skipped sample in a batch: ", verdict.name);
    out.push_back({{verdict.sample, 0, 0}, whole_item(verdict.tokens), placed.pieces});
  }
  return out;
}

ItemStreams item_streams(const StepPlan& plan, const std::vector<PlacedItem>& items, const std::string& modality,
                         const BatchModality& use) {
  ItemStreams out;
  std::map<std::string, int64_t> axes;
  for (const PlacedItem& placed : items) {
    const ItemPlace& place = place_of(plan, placed);
    const Verdict& verdict = verdict_of(plan, placed.sample);
    const SegmentKey key{verdict.sample, static_cast<uint64_t>(placed.item) + 1, 0};
    StreamItem in{key, use.encoder->layout(place.meta), placed.pieces};
    const std::string mistake = layout_mistake(in.layout, place.meta);
    if (!mistake.empty()) refuse_layout(modality, use, verdict, mistake);
    check_axes(in.layout, modality, use, verdict, axes);
    StreamItem outputs{key, whole_item(place.meta.outputs), output_pieces(in, place, verdict, use)};
    outputs.layout.partitions["slots"].lengths = {place.slots};
    out.encoder.push_back(std::move(in));
    out.outputs.push_back(std::move(outputs));
  }
  out.connector = out.outputs;
  return out;
}

RowMove move_to_connector(const ItemStreams& streams, const WorldLayout& layout, int rank) {
  const std::vector<RowRun> destination = runs_of(streams.connector, "");
  const std::vector<std::vector<int64_t>> local = local_rows(streams.outputs);
  std::vector<RowRun> source;  // an item's rows in its encoder's order
  int64_t global = 0;
  for (size_t i = 0; i < streams.outputs.size(); ++i) {
    const StreamItem& item = streams.outputs[i];
    std::vector<int64_t> permutation = streams.encoder[i].layout.permutation;
    if (fault(Fault::permutation_twice)) {
      const std::vector<int64_t> right = permutation;
      for (size_t row = 0; row < right.size(); ++row)
        permutation[static_cast<size_t>(right[row])] = static_cast<int64_t>(row);
    }
    for (size_t p = 0; p < item.pieces.size(); ++p) {
      const Piece& piece = item.pieces[p];
      if (permutation.empty()) {
        source.push_back({piece.rank, global + piece.begin, local[i][p], piece.rows});
        continue;
      }
      for (int64_t row = 0; row < piece.rows; ++row) {
        const int64_t natural = permutation[static_cast<size_t>(piece.begin + row)];
        source.push_back({piece.rank, global + natural, local[i][p] + row, 1});
      }
    }
    global += item.layout.partitions.find("")->second.rows();
  }
  return make_move(global, std::move(source), destination, layout, rank);
}

std::vector<StreamItem> embedding_items(const StepPlan& plan, const MicrobatchPlan& microbatch,
                                        const std::vector<StreamItem>& text, const std::string& modality) {
  std::vector<StreamItem> out;
  for (size_t s = 0; s < text.size(); ++s) {
    int64_t rows = 0;
    for (const ItemPlace& place : verdict_of(plan, microbatch.samples[s].sample).items)
      rows += place.modality == modality ? place.slots : 0;
    StreamItem item{text[s].key, whole_item(rows), {}};
    const int64_t pieces = static_cast<int64_t>(text[s].pieces.size());
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t begin = rows * p / pieces, end = rows * (p + 1) / pieces;
      item.pieces.push_back({text[s].pieces[static_cast<size_t>(p)].rank, begin, end - begin});
    }
    out.push_back(std::move(item));
  }
  return out;
}

SlotRows slots_in_text(const StepPlan& plan, const MicrobatchPlan& microbatch, const std::vector<PlacedItem>& items,
                       const std::vector<StreamItem>& text, int rank) {
  const std::map<int64_t, size_t> places = sample_places(microbatch);
  const std::vector<std::vector<int64_t>> local = local_rows(text);
  SlotRows out;
  std::map<int, int64_t> filled;
  int64_t global = 0;
  for (const PlacedItem& placed : items) {
    const ItemPlace& place = place_of(plan, placed);
    const size_t s = places.at(placed.sample);
    for_rows(text[s], local[s], place.begin, place.slots, [&](int to, int64_t row, int64_t offset, int64_t rows) {
      int64_t& next = filled[to];
      out.runs.push_back({to, global + offset, next, rows});
      next += rows;
      for (int64_t i = 0; to == rank && i < rows; ++i) out.slots.push_back(row + i);
    });
    global += place.slots;
  }
  return out;
}

SlotRows slots_in_stream(const StepPlan& plan, const MicrobatchPlan& microbatch, const std::vector<PlacedItem>& items,
                         const std::vector<StreamItem>& stream, int rank) {
  const std::map<int64_t, size_t> places = sample_places(microbatch);
  const std::vector<std::vector<int64_t>> local = local_rows(stream);
  SlotRows out;
  int64_t global = 0;
  for (const PlacedItem& placed : items) {
    const ItemPlace& place = place_of(plan, placed);
    const size_t s = places.at(placed.sample);
    int64_t begin = 0;  // within the sample's rows: after its earlier items
    const std::vector<ItemPlace>& all = verdict_of(plan, placed.sample).items;
    for (size_t i = 0; i < static_cast<size_t>(placed.item); ++i)
      begin += all[i].modality == place.modality ? all[i].slots : 0;
    for_rows(stream[s], local[s], begin, place.slots, [&](int to, int64_t row, int64_t offset, int64_t rows) {
      out.runs.push_back({to, global + offset, row, rows});
    });
    global += place.slots;
  }
  int64_t rows = 0;
  for (const LocalPiece& piece : pieces_on(stream, rank)) rows += piece.piece.rows;
  for (int64_t i = 0; i < rows; ++i) out.slots.push_back(i);
  return out;
}

void move_connector_to_slots(std::vector<StreamItem>& connector, const std::vector<RowRun>& runs) {
  int64_t begin = 0;  // of the item's slots
  size_t run = 0;
  for (StreamItem& item : connector) {
    const int64_t slots = item.layout.partitions.find("slots")->second.rows(),
                  outputs = item.layout.partitions.find("")->second.rows();
    if (slots == 0) continue;
    item.pieces.clear();
    for (; run < runs.size() && runs[run].global < begin + slots; ++run)
      item.pieces.push_back(
          {runs[run].rank, (runs[run].global - begin) * outputs / slots, runs[run].rows * outputs / slots});
    begin += slots;
  }
}

RowMove move_to_backbone(const std::vector<StreamItem>& connector, const SlotRows& slots, const WorldLayout& layout,
                         int rank) {
  return make_move(rows_of(connector, "slots"), runs_of(connector, "slots"),
                   fault(Fault::stale_routes) ? rotated(slots.runs) : slots.runs, layout, rank);
}

}  // namespace loom
