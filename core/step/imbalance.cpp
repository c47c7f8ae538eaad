#include "core/step/imbalance.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/step/pack_samples.h"
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

void add_costs(double cost, int64_t rows, const std::vector<Piece>& pieces, Loads& loads) {
  std::vector<double> costs(loads.size());
  add_load(cost, rows, pieces, costs);
  for (size_t rank = 0; rank < costs.size(); ++rank) loads[rank].cost += costs[rank];
}

void add_rows(int rank, int64_t rows, Loads& connector) {
  connector[static_cast<size_t>(rank)].tokens += rows;
  connector[static_cast<size_t>(rank)].cost += static_cast<double>(rows);
}

void add_item(const ItemPlace& place, const std::vector<Piece>& pieces, Loads& encoder) {
  count(pieces, encoder);
  add_costs(cost_of(place.meta), place.meta.tokens, pieces, encoder);
  for (const Piece& piece : pieces) encoder[static_cast<size_t>(piece.rank)].tokens += piece.rows;
}

void add_slots_of_item(const ItemPlace& place, const std::vector<Piece>& pieces, Loads& connector) {
  count(pieces, connector);
  for (const Piece& piece : pieces)
    add_rows(piece.rank, slots_before(place, piece.begin + piece.rows) - slots_before(place, piece.begin), connector);
}

// Where the sample has them; of an own stream, in proportion to the sample's pieces.
void add_slots_of_sample(const ItemPlace& place, const std::vector<Piece>& pieces, Loads& connector) {
  bool counted = false;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    const auto parts = static_cast<int64_t>(pieces.size()), part = static_cast<int64_t>(p);
    const int64_t rows = place.begin < 0 ? place.slots * (part + 1) / parts - place.slots * part / parts
                                         : std::min(piece.begin + piece.rows, place.begin + place.slots) -
                                               std::max(piece.begin, place.begin);
    if (rows <= 0) continue;
    add_rows(piece.rank, rows, connector);
    if (!std::exchange(counted, true)) ++connector[static_cast<size_t>(piece.rank)].items;
  }
}

}  // namespace

std::map<std::string, Loads> rank_loads(const StepPlan& plan, const MicrobatchPlan& microbatch) {
  const int world = plan.layout.world;
  std::map<std::string, Loads> out;
  Loads& backbone = loads_of(out, "backbone", world);
  std::map<int64_t, const std::vector<Piece>*> pieces_of;  // by sample
  for (const PlacedSample& sample : microbatch.samples) {
    const Verdict& verdict = plan.samples[static_cast<size_t>(sample.sample)];
    pieces_of[sample.sample] = &sample.pieces;
    count(sample.pieces, backbone);
    add_costs(cost_of(verdict), verdict.tokens, sample.pieces, backbone);
    for (const Piece& piece : sample.pieces) backbone[static_cast<size_t>(piece.rank)].tokens += piece.rows;
  }
  for (const auto& [modality, items] : microbatch.items) {
    Loads& encoder = loads_of(out, "encoders." + modality, world);
    Loads& connector = loads_of(out, "connectors." + modality, world);
    const bool at_slots = plan.layout.connector(modality).side == ConnectorSide::backbone;
    for (const PlacedItem& item : items) {
      const Verdict& verdict = plan.samples[static_cast<size_t>(item.sample)];
      const ItemPlace& place = verdict.items[static_cast<size_t>(item.item)];
      add_item(place, item.pieces, encoder);
      if (at_slots) {
        add_slots_of_sample(place, *pieces_of.at(item.sample), connector);
      } else {
        add_slots_of_item(place, item.pieces, connector);
      }
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
    void add(const std::vector<double>& costs) {
      most += *std::max_element(costs.begin(), costs.end());
      mean += std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
    }
  };
  const auto world = static_cast<size_t>(plan.layout.world);
  std::vector<std::map<std::string, Loads>> loads;  // by microbatch
  for (const MicrobatchPlan& microbatch : plan.microbatches) loads.push_back(rank_loads(plan, microbatch));
  const auto add = [&](size_t microbatch, const std::string& component, std::vector<double>& costs) {
    const auto found = loads[microbatch].find(component);
    if (found == loads[microbatch].end()) return;
    for (size_t rank = 0; rank < world; ++rank) costs[rank] += found->second[rank].cost;
  };
  std::map<std::string, Sums> sums;
  for (size_t m = 0; m < loads.size(); ++m) {
    std::vector<double> costs(world);
    add(m, "backbone", costs);
    sums["backbone"].add(costs);
  }
  for (const EncoderPass& pass : encoder_passes(plan)) {
    std::vector<double> costs(world);
    for (size_t m = pass.first; m <= pass.last; ++m) add(m, "encoders." + pass.modality, costs);
    sums["encoders." + pass.modality].add(costs);
  }
  std::map<std::string, double> out;
  for (const auto& [component, sum] : sums) {
    if (sum.mean > 0) out[component] = sum.most / sum.mean;
  }
  return out;
}

}  // namespace loom
