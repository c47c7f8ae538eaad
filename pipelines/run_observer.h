#pragma once
// Everything that rank 0 shows of a run while it goes on: the head, the progress line, metrics.jsonl, timing.jsonl,
// ranks.jsonl, timeline.json, TensorBoard events, samples.jsonl and report.html. The training loop tells it what
// happened and never asks it anything.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/data/loader.h"
#include "core/observe/metrics.h"
#include "core/observe/progress.h"
#include "core/observe/tensorboard.h"
#include "core/train/trainer.h"
#include "pipelines/evaluator.h"
#include "pipelines/job.h"
#include "pipelines/rank_log.h"
#include "pipelines/run_report.h"
#include "pipelines/run_state.h"
#include "pipelines/sample_log.h"
#include "pipelines/step_cost.h"
#include "pipelines/step_timing.h"

namespace loom {

// Held-out samples that the report of a run shows.
inline constexpr int64_t kShownSamples = 12;

// Shares of the budgets of all lanes and microbatches that hold tokens.
double packed_fill(const StepPlan& plan);

class RunObserver {
 public:
  // Opens the run's files. The job must outlive it.
  RunObserver(const Job& job, std::string run, int64_t training_samples);
  ~RunObserver();
  RunObserver(const RunObserver&) = delete;
  RunObserver& operator=(const RunObserver&) = delete;

  // Before the first step: `resumed` drops what the files say of steps after state.step.
  void begin(const RunState& state, bool resumed);
  void print_head();                       // program, machine, model
  void print_data(const StepPlan* first);  // data and run; null when no step is left
  // What a step costs, all ranks together; null = not known, and not shown. Must outlive this.
  void set_cost(const StepCost* cost) { cost_ = cost; }
  // Seconds from the process's start to the first forward, told in the first line of metrics.jsonl.
  // Goes into the next line of metrics.jsonl, once: "startup_seconds", "save_stall_seconds".
  void tell(const std::string& name, double value) { told_.emplace_back(name, value); }
  void set_plan(std::vector<ReportPlanRow> rows) { report_.plan = std::move(rows); }

  void step_done(const StepPlan& plan, const StepStats& stats, const StepTime& time, const StepLoader& loader,
                 const RunState& state);
  // Of several ranks, behind step_done: what each of them did.
  void ranks_done(const StepPlan& plan, const RankTable& table) { ranks_.step_done(plan, table, line_); }
  // What the ranks will send in the step whose ranks_done comes next.
  void predict_wire(WireForecast forecast) { ranks_.predict(std::move(forecast)); }
  void timeline(const RankTimeline& timeline) const { ranks_.timeline(line_.step, timeline); }
  void evaluated(const EvalOptions& options, const EvalResult& result);
  // Writes what is known of the step: once per step, after its evaluation if there was one.
  void end_step(const StepLoader& loader);
  void saved(const StepLoader& loader);
  // The last report and the last line. status: "finished", "interrupted", "failed".
  void end(const RunState& state, const std::string& status, const std::string& note, const StepLoader& loader);

 private:
  void measure_peak();
  MetricsLine metrics_of(const StepPlan& plan, const StepStats& stats, const StepTime& time, const StepLoader& loader);
  void write_timing(const StepPlan& plan, const StepTime& time);
  void show(const StepPlan& plan, const StepStats& stats, const StepTime& time);
  void write_samples_text(const EvalResult& result);
  void write_report(const StepLoader& loader);
  bool report_due(double at_least_seconds) const;
  bool alone() const { return job_.layout.world == 1; }

  const Job& job_;
  std::string run_;
  int64_t steps_;
  MetricsWriter metrics_, timing_;
  RankLog ranks_;
  SampleLog samples_;
  std::unique_ptr<TensorBoardWriter> events_;
  std::unique_ptr<Progress> progress_;
  const StepCost* cost_ = nullptr;
  TimeTotals times_;
  RunReport report_;
  MetricsLine line_;  // of the step under way
  ProgressState shown_;
  bool evaluated_ = false;  // in the step under way
  bool pictures_in_events_ = false;
  double seconds_per_step_ = 0, tokens_per_second_ = 0, flops_per_second_ = 0, data_fraction_ = 0;
  std::vector<std::pair<std::string, double>> told_;  // not written yet
  double reported_at_ = -1, report_cost_ = 0;
};

}  // namespace loom
