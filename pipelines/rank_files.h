#pragma once
// What all ranks did, as it is written and read back: ranks.jsonl with a line per step, timeline.json with one step.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/step/imbalance.h"
#include "core/train/rank_table.h"
#include "core/train/rank_timeline.h"
#include "core/train/rank_waits.h"

namespace loom {

// Bytes that ranks will send in a step, by component ("" = none), then by rank; -1 = not predicted.
using WireForecast = std::map<std::string, std::vector<int64_t>>;

// {"step":3,"seconds":[..],"compute":[..],"components":{"encoders.image":{"items":[..],"tokens":[..],"predicted":[..],
// "compute":[..],"communication":[..],"waiting":[..],"sent":[..]}},"sent":[..],"waits":[{"rank":0,"for":3,
// "component":"encoders.image","seconds":..}]}. Lists are by rank; the backbone has "samples" in place of "items";
// "sent" of the step is what belongs to no component. With a forecast every "sent" has a "sent_predicted" beside it.
std::string ranks_json(int64_t step, const std::map<std::string, std::vector<RankLoad>>& loads, const RankTable& table,
                       const RankWaits& waits, const WireForecast& forecast = {});
// Every how many steps a line is written.
int64_t ranks_interval(int64_t steps, int world, size_t components);

struct ComponentRanks {
  std::string component;
  std::vector<double> items, tokens, predicted, compute, communication, waiting, sent;  // by rank
};

struct MeanRanks {
  int64_t lines = 0;
  std::vector<double> seconds, compute;  // of a step, by rank
  std::vector<ComponentRanks> components;
  std::vector<RankWait> waits;  // seconds per step, longest first
};

// Means over the last `lines` lines of a ranks.jsonl; no lines when there is no file. Lines of another number of ranks
// than the last one's are left out.
MeanRanks mean_ranks(const std::string& path, size_t lines);

struct WireCheck {
  int64_t step = 0;
  WireForecast predicted, sent;  // of the same components and ranks
};
// The last line with a forecast; step 0 when there is none.
WireCheck wire_check(const std::string& path);

// {"step":3,"ranks":[[{"component":"backbone","action":"forward","begin":..,"end":..}]]}: seconds; bars of
// communication have "communication":true.
std::string timeline_json(int64_t step, const RankTimeline& timeline);

struct ReadTimeline {
  int64_t step = 0;
  RankTimeline timeline;
};
// Nothing when there is no such file, or it is not readable.
std::optional<ReadTimeline> read_timeline(const std::string& path);

}  // namespace loom
