// A plan against its own verdicts: every row once, every cut legal. For tests, and for plans that somebody else made.
#include <algorithm>

#include "core/base/error.h"
#include "core/step/step_plan.h"

namespace loom {
namespace {

// Pieces cover [0, rows) in order; `cuts` (unless null) lists where they may meet.
void check_pieces(const std::vector<Piece>& pieces, int64_t rows, int world, const std::vector<int64_t>* cuts,
                  const std::string& whose) {
  LOOM_CHECK(!pieces.empty(), whose, " lies nowhere");
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    LOOM_CHECK(piece.rank >= 0 && piece.rank < world, whose, " lies on rank ", piece.rank, " of ", world);
    LOOM_CHECK(piece.begin == end && piece.rows >= 0, whose, ": the piece on rank ", piece.rank, " is rows ",
               piece.begin, " to ", piece.begin + piece.rows, ", the one before ends at ", end);
    LOOM_CHECK(cuts == nullptr || end == 0 || end == rows || std::binary_search(cuts->begin(), cuts->end(), end), whose,
               " is cut at row ", end, " before rank ", piece.rank, ", which is no legal cut");
    end += piece.rows;
  }
  LOOM_CHECK(end == rows, whose, ": pieces up to rank ", pieces.back().rank, " hold ", end, " of ", rows, " rows");
}

}  // namespace

void check_plan(const StepPlan& plan) {
  const int world = plan.layout.world;
  std::vector<int> seen(plan.samples.size(), 0);
  std::vector<std::vector<int>> items_seen;
  for (const Verdict& verdict : plan.samples) items_seen.emplace_back(verdict.items.size(), 0);
  int64_t tokens = 0;
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    int64_t here = 0;
    std::vector<bool> present(plan.samples.size(), false);
    for (const PlacedSample& placed : microbatch.samples) {
      LOOM_CHECK(placed.sample >= 0 && placed.sample < static_cast<int64_t>(plan.samples.size()), "sample ",
                 placed.sample, " of ", plan.samples.size());
      const size_t sample = static_cast<size_t>(placed.sample);
      const Verdict& verdict = plan.samples[sample];
      LOOM_CHECK(verdict.ok, "a skipped sample in a plan: ", verdict.name);
      LOOM_CHECK(++seen[sample] == 1, verdict.name, " is in the plan more than once, again on rank ",
                 placed.pieces.empty() ? -1 : placed.pieces.front().rank);
      present[sample] = true;
      check_pieces(placed.pieces, verdict.tokens, world, nullptr, verdict.name);
      here += verdict.tokens;
    }
    LOOM_CHECK(here == microbatch.tokens, "a microbatch of ", here, " tokens says ", microbatch.tokens);
    tokens += here;
    for (const auto& [modality, items] : microbatch.items) {
      for (const PlacedItem& placed : items) {
        const size_t sample = static_cast<size_t>(placed.sample), item = static_cast<size_t>(placed.item);
        LOOM_CHECK(sample < plan.samples.size() && present[sample] && item < items_seen[sample].size(), "item ",
                   placed.item, " of sample ", placed.sample, " is encoded in a microbatch without that sample");
        const ItemPlace& place = plan.samples[sample].items[item];
        const std::string whose = concat(modality, " ", item, " of ", plan.samples[sample].name);
        LOOM_CHECK(place.modality == modality, whose, " is of modality ", place.modality);
        LOOM_CHECK(++items_seen[sample][item] == 1, whose, " is encoded more than once");
        check_pieces(placed.pieces, place.meta.tokens, world, &place.cuts, whose);
      }
    }
  }
  for (size_t s = 0; s < plan.samples.size(); ++s) {
    LOOM_CHECK(seen[s] == 1, plan.samples[s].name, " is on no rank");
    for (size_t i = 0; i < items_seen[s].size(); ++i)
      LOOM_CHECK(items_seen[s][i] == 1, "item ", i, " of ", plan.samples[s].name, " is encoded on no rank");
  }
  LOOM_CHECK(tokens == plan.tokens, "a plan of ", tokens, " tokens says ", plan.tokens);
}

}  // namespace loom
