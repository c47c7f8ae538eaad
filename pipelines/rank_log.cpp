#include "pipelines/rank_log.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/observe/progress.h"

namespace loom {

void WaitTotals::add(const RankTable& table, const RankWaits& waits) {
  for (const double seconds : table.seconds) seconds_ += seconds;
  for (const RankWait& wait : waits.waits) {
    behind_[{wait.behind, wait.part}] += wait.seconds;
    waited_ += wait.seconds;
  }
}

std::string WaitTotals::line() const {
  std::string out = "waiting " + percent_text(waited_ / seconds_, "%.0f %%");
  const auto most = std::max_element(behind_.begin(), behind_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != behind_.end() && most->second > 0) {
    const auto& [rank, part] = most->first;
    const bool named = part != kOtherPart && part != kBetweenPart;
    out += concat(" · most for rank ", rank, named ? "'s " + part : part == kBetweenPart ? " between steps" : "");
  }
  return out;
}

RankLog::RankLog(const std::string& run, const WorldLayout& layout, int64_t steps, size_t components)
    : run_(run), layout_(layout), steps_(steps), every_(ranks_interval(steps, layout.world, components)) {
  if (layout.world > 1) lines_ = std::make_unique<MetricsWriter>(run_ + "/ranks.jsonl");
}

void RankLog::truncate_after(int64_t step) {
  const std::string path = run_ + "/ranks.jsonl";
  if (lines_ == nullptr && is_file(path)) MetricsWriter(path).truncate_after(step);  // it had several ranks before
  if (lines_ != nullptr) lines_->truncate_after(step);
}

void RankLog::step_done(const StepPlan& plan, const RankTable& table, MetricsLine& line) {
  const RankWaits waits = waits_of(table, layout_);
  totals_.add(table, waits);
  for (const auto& [component, ratio] : measured_imbalance(table)) line.add("imbalance_measured/" + component, ratio);
  line.add("critical_path", *std::max_element(table.compute.begin(), table.compute.end()));
  for (const auto& [part, seconds] : waits.by_part)
    line.add("wait/" + part, *std::max_element(seconds.begin(), seconds.end()));
  line.add("wait_share", waits.share);
  if (line.step % every_ != 0 && line.step != steps_ && forecast_.empty()) return;
  lines_->write_json(ranks_json(line.step, rank_loads(plan), table, waits, forecast_));
  forecast_.clear();
}

void RankLog::timeline(int64_t step, const RankTimeline& timeline) const {
  write_file_atomic(run_ + "/timeline.json", timeline_json(step, timeline));
}

}  // namespace loom
