#include "core/step/imbalance.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/step/spread_items.h"

namespace loom {
namespace {

struct Sums {
  double most = 0, mean = 0;
  void add(const std::vector<double>& loads) {
    most += *std::max_element(loads.begin(), loads.end());
    mean += std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
  }
};

}  // namespace

std::map<std::string, double> imbalance_of(const StepPlan& plan) {
  std::map<std::string, Sums> sums;
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    std::vector<double> rows(static_cast<size_t>(plan.layout.world));
    for (const PlacedSample& sample : microbatch.samples) {
      for (const Piece& piece : sample.pieces) rows[static_cast<size_t>(piece.rank)] += static_cast<double>(piece.rows);
    }
    sums["backbone"].add(rows);
    for (const auto& [modality, items] : microbatch.items) {
      std::vector<double> costs(static_cast<size_t>(plan.layout.world));
      for (const PlacedItem& item : items) {
        const ItemMeta& meta =
            plan.samples[static_cast<size_t>(item.sample)].items[static_cast<size_t>(item.item)].meta;
        add_load(cost_of(meta), meta.tokens, item.pieces, costs);
      }
      sums["encoders." + modality].add(costs);
    }
  }
  std::map<std::string, double> out;
  for (const auto& [component, sum] : sums) {
    if (sum.mean > 0) out[component] = sum.most / sum.mean;
  }
  return out;
}

}  // namespace loom
