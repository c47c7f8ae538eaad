#pragma once
// The report and the summary of a finished or running run, from its folder and what is known of it.
#include <optional>
#include <string>
#include <vector>

#include "pipelines/evaluator.h"
#include "pipelines/job.h"
#include "pipelines/plan.h"
#include "pipelines/report.h"
#include "pipelines/run_state.h"
#include "pipelines/sample_log.h"

namespace loom {

// The newest evaluation, as numbers.
struct EvalNumbers {
  int64_t step = 0, samples = 0, skipped = 0;
  std::string first_skip{};
  double loss = 0;
  std::optional<double> exact{}, swapped{}, accuracy{};
};

struct RunReport {
  const Job* job = nullptr;
  RunState state{};
  std::string status{};  // "running", "finished", "interrupted", "failed"
  std::string note{};
  int64_t samples = 0;  // training samples of all sources; 0 = not counted
  int64_t ranks = 1;
  double peak = 0;  // measured floating-point operations per second; 0 = not measured
  std::optional<double> loss{}, tokens_per_second{}, flops_per_second{}, packed_fill{};  // of the last steps
  int64_t memory_peak = 0;
  std::optional<EvalNumbers> eval{};
  std::vector<ReportPlanRow> plan{};
};

// Replaces run/report.html.
void write_run_report(const std::string& run, const RunReport& report, const SampleLog& samples,
                      const std::vector<SkipRecord>& skips);
EvalNumbers eval_numbers(int64_t step, const EvalOptions& options, const EvalResult& result);
// Components with their parameters, for runs whose memory nobody planned.
std::vector<ReportPlanRow> plain_plan(const Job& job);
std::vector<ReportPlanRow> plan_rows(const TrainingPlan& plan, const Job& job);

// `omniloom eval --report`: writes run/report.html and run/summary.json from a fresh evaluation.
void report_run(const std::string& run, const Job& job, const RunState& state, const EvalResult& result,
                const std::optional<EvalResult>& swapped);

}  // namespace loom
