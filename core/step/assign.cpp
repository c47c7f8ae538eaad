// From verdicts to works and back; the arithmetic is in spread_items.
#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "core/step/spread_items.h"
#include "core/step/step_plan.h"

namespace loom {
namespace {

int rank_of_row(const PlacedSample& sample, int64_t row) {
  LOOM_CHECK(!sample.pieces.empty(), "a sample that lies nowhere");
  for (const Piece& piece : sample.pieces) {
    if (row < piece.begin + piece.rows) return piece.rank;
  }
  return sample.pieces.back().rank;
}

}  // namespace

void assign_items(StepPlan& plan, const EncoderPass& pass) {
  std::vector<ItemWork> works;
  std::vector<PlacedItem*> items;
  for (size_t m = pass.first; m < pass.first + pass.count; ++m) {
    MicrobatchPlan& microbatch = plan.microbatches.at(m);
    const auto found = microbatch.items.find(pass.modality);
    if (found == microbatch.items.end()) continue;
    std::unordered_map<int64_t, const PlacedSample*> of_sample;
    for (const PlacedSample& sample : microbatch.samples) of_sample[sample.sample] = &sample;
    for (PlacedItem& item : found->second) {
      const ItemPlace& place =
          plan.samples.at(static_cast<size_t>(item.sample)).items.at(static_cast<size_t>(item.item));
      const auto sample = of_sample.find(item.sample);
      LOOM_CHECK(sample != of_sample.end(), "an item of a sample that is not in the microbatch");
      works.push_back({cost_of(place.meta), rank_of_row(*sample->second, std::max<int64_t>(place.begin, 0)),
                       place.meta.tokens, &place.cuts});
      items.push_back(&item);
    }
  }
  const ComponentLayout encoder = plan.layout.encoder(pass.modality);
  std::vector<std::vector<Piece>> pieces =
      spread_items(works, plan.layout.world, encoder.sp, plan.layout.balance, encoder.most_rows);
  for (size_t i = 0; i < items.size(); ++i) items[i]->pieces = std::move(pieces[i]);
}

}  // namespace loom
