#include "core/step/imbalance.h"

#include <algorithm>

#include "core/step/spread_items.h"

namespace loom {
namespace {

using Loads = std::vector<RankLoad>;

Loads& loads_of(std::map<std::string, Loads>& all, const std::string& component, int world) {
  Loads& loads = all[component];
  loads.resize(static_cast<size_t>(world));
  return loads;
}

void count(const std::vector<Piece>& pieces, Loads& loads) {
  const auto first = std::find_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.rows > 0; });
  if (first != pieces.end()) ++loads[static_cast<size_t>(first->rank)].items;
}

// The rows that an item's rows [0, end) become.
int64_t slots_before(const ItemPlace& place, int64_t end) {
  return place.meta.tokens > 0 ? end * place.slots / place.meta.tokens : 0;
}

void add_item(const ItemPlace& place, const std::vector<Piece>& pieces, Loads& encoder, Loads& connector) {
  count(pieces, encoder);
  count(pieces, connector);
  std::vector<double> costs(encoder.size());
  add_load(cost_of(place.meta), place.meta.tokens, pieces, costs);
  for (size_t rank = 0; rank < costs.size(); ++rank) encoder[rank].cost += costs[rank];
  for (const Piece& piece : pieces) {
    const auto rank = static_cast<size_t>(piece.rank);
    encoder[rank].tokens += piece.rows;
    const int64_t slots = slots_before(place, piece.begin + piece.rows) - slots_before(place, piece.begin);
    connector[rank].tokens += slots;
    connector[rank].cost += static_cast<double>(slots);
  }
}

}  // namespace

std::map<std::string, Loads> rank_loads(const StepPlan& plan, const MicrobatchPlan& microbatch) {
  const int world = plan.layout.world;
  std::map<std::string, Loads> out;
  Loads& backbone = loads_of(out, "backbone", world);
  for (const PlacedSample& sample : microbatch.samples) {
    count(sample.pieces, backbone);
    for (const Piece& piece : sample.pieces) {
      backbone[static_cast<size_t>(piece.rank)].tokens += piece.rows;
      backbone[static_cast<size_t>(piece.rank)].cost += static_cast<double>(piece.rows);
    }
  }
  for (const auto& [modality, items] : microbatch.items) {
    Loads& encoder = loads_of(out, "encoders." + modality, world);
    Loads& connector = loads_of(out, "connectors." + modality, world);
    for (const PlacedItem& item : items) {
      const Verdict& verdict = plan.samples[static_cast<size_t>(item.sample)];
      add_item(verdict.items[static_cast<size_t>(item.item)], item.pieces, encoder, connector);
    }
  }
  return out;
}

std::map<std::string, Loads> rank_loads(const StepPlan& plan) {
  std::map<std::string, Loads> out;
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const auto& [component, loads] : rank_loads(plan, microbatch)) {
      Loads& sum = loads_of(out, component, plan.layout.world);
      for (size_t rank = 0; rank < loads.size(); ++rank) {
        sum[rank].items += loads[rank].items;
        sum[rank].tokens += loads[rank].tokens;
        sum[rank].cost += loads[rank].cost;
      }
    }
  }
  return out;
}

std::map<std::string, double> imbalance_of(const StepPlan& plan) {
  struct Sums {
    double most = 0, mean = 0;
  };
  std::map<std::string, Sums> sums;
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const auto& [component, loads] : rank_loads(plan, microbatch)) {
      if (component.starts_with("connectors.")) continue;
      double most = 0, all = 0;
      for (const RankLoad& load : loads) {
        most = std::max(most, load.cost);
        all += load.cost;
      }
      sums[component].most += most;
      sums[component].mean += all / static_cast<double>(loads.size());
    }
  }
  std::map<std::string, double> out;
  for (const auto& [component, sum] : sums) {
    if (sum.mean > 0) out[component] = sum.most / sum.mean;
  }
  return out;
}

}  // namespace loom
