// From verdicts to works and back; the arithmetic is in spread_items.
#include <algorithm>

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

void assign_items(const std::vector<Verdict>& samples, const std::vector<PlacedSample>& placed,
                  std::vector<PlacedItem>& items, const WorldLayout& layout, int sp) {
  std::vector<const PlacedSample*> of_sample(samples.size());
  for (const PlacedSample& sample : placed) of_sample[static_cast<size_t>(sample.sample)] = &sample;
  std::vector<ItemWork> works;
  works.reserve(items.size());
  for (const PlacedItem& item : items) {
    const ItemPlace& place = samples[static_cast<size_t>(item.sample)].items[static_cast<size_t>(item.item)];
    const PlacedSample* sample = of_sample[static_cast<size_t>(item.sample)];
    LOOM_CHECK(sample != nullptr, "an item of a sample that is not in the microbatch");
    works.push_back(
        {cost_of(place.meta), rank_of_row(*sample, std::max<int64_t>(place.begin, 0)), place.meta.tokens, &place.cuts});
  }
  std::vector<std::vector<Piece>> pieces = spread_items(works, layout.world, sp, layout.balance);
  for (size_t i = 0; i < items.size(); ++i) items[i].pieces = std::move(pieces[i]);
}

}  // namespace loom
