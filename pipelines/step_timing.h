#pragma once
// Times of steps as they are written and read back: time/NAME in metrics.jsonl, and timing.jsonl with one line per step
// that says it for every unit.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/model/step_clock.h"
#include "core/observe/metrics.h"

namespace loom {

// Seconds of a step by kind: {"gemm", "attention", "communication", "other", "optimizer", "data", "rest"}; their sum is
// the whole step.
std::vector<std::pair<std::string, double>> seconds_by_kind(const StepTime& time);
// Adds them as time/NAME; `communication` only where there are others to talk to.
void add_times(MetricsLine& line, const StepTime& time, bool alone);

// Shares over many steps, in one line: "gemm 74 % · attention 9 % · other 12 % · optimizer 2 % · data 0 %".
class TimeTotals {
 public:
  void add(int64_t step, const StepTime& time);
  bool empty() const { return seconds_ <= 0; }
  std::string line() const;

 private:
  std::vector<std::pair<std::string, double>> sums_;
  double seconds_ = 0, worst_data_ = 0;  // share of the step in which data took most
  int64_t worst_step_ = 0;
};

// {"step":3,"units":[{"unit":"backbone.blocks.0","forward":{"gemm":..,"attention":..,"other":..},"backward":{..}}]}.
// "communication" only where there was some; "flops" (of the step, forward and backward) where they are known.
std::string timing_json(int64_t step, const StepTime& time, const std::map<std::string, double>& unit_flops);
// Every how many steps a line of so many bytes is written, so that the file of a long run stays below some 20 MB.
int64_t line_interval(int64_t steps, double line_bytes);
// Of timing.jsonl.
int64_t timing_interval(int64_t steps, size_t units);

struct TimedUnit {
  std::string unit;  // "backbone.blocks.0"
  KindSeconds forward, backward;
  double flops = 0;  // 0 = not known
  double seconds() const { return forward.total() + backward.total(); }
};

// Means over the last `lines` lines of a timing.jsonl; none when there is no file. Units that a line lacks took no time
// in it.
std::vector<TimedUnit> mean_timing(const std::string& path, size_t lines);

}  // namespace loom
