#pragma once
// What rank 0 keeps of all ranks of a run: numbers of each step for metrics.jsonl, ranks.jsonl, timeline.json, and one
// line at the end.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/observe/metrics.h"
#include "core/step/step_plan.h"
#include "pipelines/rank_files.h"

namespace loom {

// Waiting over the steps of a run: "waiting 12 % · most for rank 3's encoders.image".
class WaitTotals {
 public:
  void add(const RankTable& table, const RankWaits& waits);
  bool empty() const { return seconds_ <= 0; }
  std::string line() const;

 private:
  std::map<std::pair<int, std::string>, double> behind_;  // by rank and part that others waited for
  double seconds_ = 0, waited_ = 0;                       // of all ranks
};

class RankLog {
 public:
  // Opens RUN/ranks.jsonl where there are several ranks. `components`: how many the model has.
  RankLog(const std::string& run, const WorldLayout& layout, int64_t steps, size_t components);
  // On resume: what the files say of later steps.
  void truncate_after(int64_t step);
  // Goes into the next line of ranks.jsonl.
  void predict(WireForecast forecast) { forecast_ = std::move(forecast); }
  // Adds imbalance_measured/COMPONENT, critical_path, wait/PART and wait_share; writes a line when it is due.
  void step_done(const StepPlan& plan, const RankTable& table, MetricsLine& line);
  // Replaces RUN/timeline.json.
  void timeline(int64_t step, const RankTimeline& timeline) const;
  const WaitTotals& totals() const { return totals_; }

 private:
  std::string run_;
  const WorldLayout& layout_;
  int64_t steps_, every_;
  std::unique_ptr<MetricsWriter> lines_;
  WireForecast forecast_;
  WaitTotals totals_;
};

}  // namespace loom
