#include "core/train/rank_waits.h"

#include <algorithm>
#include <tuple>

namespace loom {
namespace {

using TablePhase = RankTable::Phase;
using Key = std::tuple<int, int, std::string>;  // rank, behind, part

constexpr double kExplains = 0.25;  // of a wait

bool any(const std::vector<double>& seconds) {
  return std::any_of(seconds.begin(), seconds.end(), [](double value) { return value > 0; });
}

// Of phases [from, to]: the part of which `behind` computed most more than `rank`, if that explains the wait.
std::string what_kept(const RankTable& table, size_t from, size_t to, size_t rank, size_t behind, double wait) {
  std::map<std::string, double> more;
  for (size_t p = from; p <= to; ++p) {
    const TablePhase& phase = table.phases[p];
    more[phase_part(phase.action, phase.component)] += phase.compute[behind] - phase.compute[rank];
  }
  const auto most =
      std::max_element(more.begin(), more.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->second >= kExplains * wait) return most->first;
  return table.phases[to].action == StepAction::data ? kBetweenPart : kOtherPart;
}

// `meetings`: seconds of communication by rank, of phase `to`; `from`: the first phase since they met before.
void add_waits(const RankTable& table, const std::vector<double>& meetings, int block, size_t from, size_t to,
               RankWaits& out, std::map<Key, double>& sums) {
  const TablePhase& phase = table.phases[to];
  const auto size = static_cast<size_t>(block);
  for (size_t begin = 0; begin < meetings.size(); begin += size) {
    const auto first = meetings.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = meetings.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, meetings.size()));
    const auto least = std::min_element(first, last);
    const auto behind = static_cast<size_t>(least - meetings.begin());
    for (auto mine = first; mine != last; ++mine) {
      const auto rank = static_cast<size_t>(mine - meetings.begin());
      const double wait = *mine - *least;
      if (wait <= 0) continue;
      const std::string part = what_kept(table, from, to, rank, behind, wait);
      sums[{static_cast<int>(rank), static_cast<int>(behind), part}] += wait;
      const auto add = [&](std::vector<double>& seconds) {
        seconds.resize(meetings.size());
        seconds[rank] += wait;
      };
      add(out.within[phase_part(phase.action, phase.component)]);
      add(out.by_part[part]);
      add(out.by_rank);
    }
  }
}

}  // namespace

int meeting_block(const WorldLayout& layout, const std::string& component) {
  const auto starts = [&](const std::string& group) { return component.starts_with(group); };
  const std::string modality = component.substr(std::min(component.find('.'), component.size() - 1) + 1);
  ComponentLayout of;
  int shared = 1;  // neighbours among which an item or a lane may be divided
  if (component == "backbone") {
    of = layout.backbone;
    shared = layout.lane_ranks();
  } else if (starts("encoders.")) {
    of = layout.encoder(modality);
    if (of.sp > 1) shared = balance_group(layout.balance, layout.world);
  } else if (starts("connectors.")) {
    of = layout.connector(modality);
  } else {
    return layout.world;
  }
  const int holders = of.shard == 0 ? layout.world : of.shard * of.tp;
  return std::clamp(std::max(holders, shared), 1, layout.world);
}

RankWaits waits_of(const RankTable& table, const WorldLayout& layout) {
  RankWaits out;
  std::map<Key, double> sums;
  out.by_rank.resize(table.seconds.size());
  size_t met = 0;  // the phase in which ranks met last
  for (size_t p = 0; p < table.phases.size(); ++p) {
    const TablePhase& phase = table.phases[p];
    if (any(phase.inside)) {
      const int block = phase.component.empty() ? layout.world : meeting_block(layout, phase.component);
      add_waits(table, phase.inside, block, met, p, out, sums);
      met = p;
    }
    if (any(phase.after)) {
      add_waits(table, phase.after, layout.world, met, p, out, sums);
      met = p;
    }
  }
  for (const auto& [key, seconds] : sums)
    out.waits.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), seconds});
  std::stable_sort(out.waits.begin(), out.waits.end(),
                   [](const RankWait& a, const RankWait& b) { return a.seconds > b.seconds; });
  for (size_t rank = 0; rank < table.seconds.size(); ++rank) {
    if (table.seconds[rank] > 0) out.share += out.by_rank[rank] / table.seconds[rank] / table.world();
  }
  return out;
}

}  // namespace loom
