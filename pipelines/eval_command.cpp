// `omniloom eval`: a run's newest checkpoint against its held-out sources.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/observe/progress.h"
#include "pipelines/cli.h"
#include "pipelines/job.h"
#include "pipelines/run_folder.h"
#include "pipelines/run_report.h"

namespace loom {
namespace {

struct EvalFlags {
  std::string run;
  int64_t step = 0, samples = 0, show = 60;
  bool swapped = false, report = false;
  std::vector<std::string> overrides;
};

EvalResult evaluate_with_progress(const Job& job, const std::vector<std::shared_ptr<Source>>& sources,
                                  const EvalOptions& options, const char* what) {
  Progress progress(stderr, ProgressPolicy::detect(stderr));
  EvalResult result =
      evaluate(*job.model, *job.tokenizer, *job.preparer, sources, options, [&](int64_t done, int64_t total) {
        ProgressState state;
        state.step = done;
        state.steps = total;
        state.extra = {{"", what}};
        progress.update(state);
      });
  progress.finish();
  LOOM_CHECK_USER(result.samples > 0, "no held-out sample could be used (", result.skipped, " skipped)");
  return result;
}

int eval(const EvalFlags& flags) {
  const Job job = make_job(resolved_recipe_of(flags.run), flags.overrides);
  const std::string checkpoint = checkpoint_of(flags.run, flags.step);
  load_model(checkpoint, *job.model);
  const RunState state = read_run_state(checkpoint);
  EvalOptions options = read_eval_options(job.recipe.eval());
  options.samples = flags.samples;  // the recipe's number is for evaluations while training
  options.show = flags.report ? flags.show : 0;
  const auto sources = job.sources("eval");
  log_info("eval    ", checkpoint, " · ", model_line(job));

  const EvalResult result = evaluate_with_progress(job, sources, options, "held-out");
  std::optional<EvalResult> swapped;
  if (flags.swapped && options.generate && !stop_requested()) {
    options.swapped = true;
    options.show = 0;
    swapped = evaluate_with_progress(job, sources, options, "swapped");
  }
  if (stop_requested()) return stop_exit_code();
  std::printf("step %lld  samples %s  loss %.4f", static_cast<long long>(state.step),
              with_commas(result.samples).c_str(), result.loss);
  if (options.generate) std::printf("  exact %.2f %%", 100 * result.exact_match());
  if (swapped.has_value()) std::printf("  swapped %.2f %%", 100 * swapped->exact_match());
  std::printf("\n");
  if (flags.report) {
    report_run(flags.run, job, state, result, swapped);
    std::printf("report %s/report.html  summary %s/summary.json\n", flags.run.c_str(), flags.run.c_str());
  }
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& root, Command& run) {
  CLI::App* command = root.add_subcommand("eval", "score a run's checkpoint on its held-out samples");
  const auto flags = std::make_shared<EvalFlags>();
  command->add_option("run,--run", flags->run, "run folder")->required();
  command->add_option("--step", flags->step, "checkpoint of this step; default: the newest");
  command->add_option("--samples", flags->samples, "only the first N; default: all");
  command->add_flag("--swapped", flags->swapped, "also with media swapped between samples");
  command->add_flag("--report", flags->report, "write report.html and summary.json into the run folder");
  command->add_option("--show", flags->show, "samples in the report")->capture_default_str();
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return eval(*flags); };
  });
}

}  // namespace loom
