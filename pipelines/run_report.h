#pragma once
// The report and the summary of a finished or running run, from its folder and a fresh evaluation.
#include <optional>
#include <string>

#include "pipelines/evaluator.h"
#include "pipelines/job.h"
#include "pipelines/run_state.h"

namespace loom {

// Writes run/report.html and run/summary.json.
void report_run(const std::string& run, const Job& job, const RunState& state, const EvalResult& result,
                const std::optional<EvalResult>& swapped);

}  // namespace loom
