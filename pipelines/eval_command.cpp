// `omniloom eval`: a run's newest checkpoint against its held-out sources, or other data.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/observe/progress.h"
#include "pipelines/cli.h"
#include "pipelines/job.h"
#include "pipelines/json_lines.h"
#include "pipelines/path_source.h"
#include "pipelines/run_folder.h"
#include "pipelines/run_report.h"

namespace loom {
namespace {

struct EvalFlags {
  std::string run, json, answers;
  std::vector<std::string> data, overrides;
  int64_t step = 0, samples = 0, show = 60;
  bool swapped = false, report = false;
};

EvalResult evaluate_with_progress(const Job& job, const std::vector<std::shared_ptr<Source>>& sources,
                                  const EvalOptions& options, const char* what) {
  Progress progress(stderr, ProgressPolicy::detect(stderr));
  EvalResult result =
      evaluate(*job.model, *job.tokenizer, *job.preparer, sources, options, [&](int64_t done, int64_t total) {
        ProgressState state;
        state.unit = "sample";
        state.step = done;
        state.steps = total;
        state.extra = {{"", what}};
        progress.update(state);
      });
  progress.finish();
  LOOM_CHECK_USER(
      result.samples > 0 || stop_requested(), "no held-out sample could be used",
      result.skipped > 0 ? concat(" (", result.skipped, " skipped; the first: ", result.first_skip, ")") : "");
  return result;
}

std::vector<std::shared_ptr<Source>> sources_of(const EvalFlags& flags, const Job& job) {
  if (flags.data.empty()) return job.sources("eval");
  std::vector<std::shared_ptr<Source>> out;
  for (const std::string& path : flags.data)
    out.push_back(source_of_path(path, static_cast<int>(out.size()), &job.recipe));
  for (const auto& source : out) job.preparer->check_source(*source);
  return out;
}

void write_json(const EvalFlags& flags, const std::string& checkpoint, int64_t step, const EvalOptions& options,
                const EvalResult& result, const std::optional<EvalResult>& swapped) {
  nlohmann::ordered_json out;
  out["run"] = flags.run;
  out["checkpoint"] = checkpoint;
  out["step"] = step;
  if (!flags.data.empty()) out["data"] = flags.data;
  out["samples"] = result.samples;
  out["skipped"] = result.skipped;
  out["supervised_tokens"] = result.supervised;
  out["loss"] = result.loss;
  out["token_accuracy"] = nullptr;
  if (result.token_accuracy().has_value()) out["token_accuracy"] = *result.token_accuracy();
  out["exact_match"] = nullptr;
  if (options.generate) out["exact_match"] = result.exact_match();
  if (swapped.has_value()) out["exact_match_swapped"] = swapped->exact_match();
  out["seconds"] = result.seconds;
  const std::filesystem::path folder = std::filesystem::path(flags.json).parent_path();
  if (!folder.empty()) make_dirs(folder.string());
  write_file_atomic(flags.json, out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void print(int64_t step, const EvalOptions& options, const EvalResult& result,
           const std::optional<EvalResult>& swapped) {
  std::printf("step %lld  samples %s  loss %.4f", static_cast<long long>(step), with_commas(result.samples).c_str(),
              result.loss);
  if (options.generate) std::printf("  exact %.2f %%", 100 * result.exact_match());
  if (swapped.has_value()) std::printf("  swapped %.2f %%", 100 * swapped->exact_match());
  if (result.token_accuracy().has_value()) std::printf("  token accuracy %.2f %%", 100 * *result.token_accuracy());
  if (result.skipped > 0) std::printf("  skipped %s", with_commas(result.skipped).c_str());
  std::printf("\n");
  if (result.skipped > 0) log_warn(with_commas(result.skipped), " skipped; the first: ", result.first_skip);
}

int eval(const EvalFlags& flags) {
  LOOM_CHECK_USER(!flags.report || flags.data.empty(),
                  "--report is about the run's own held-out samples; it goes without --data");
  const Job job = make_job(resolved_recipe_of(flags.run), flags.overrides);
  const std::string checkpoint = checkpoint_of(flags.run, flags.step);
  load_model(checkpoint, *job.model);
  const RunState state = read_run_state(checkpoint);
  EvalOptions options = read_eval_options(job.recipe.eval());
  options.samples = flags.samples;  // the recipe's number is for evaluations while training
  options.show = flags.report ? flags.show : 0;
  options.pool = job.pool.get();
  const auto sources = sources_of(flags, job);
  log_info("eval    ", checkpoint, " · ", model_line(job));

  std::unique_ptr<JsonLines> answers;
  if (!flags.answers.empty()) {
    answers = std::make_unique<JsonLines>(flags.answers);
    options.on_answer = [&](const EvalSample& sample) {
      JsonLines::Line line{{"name", sample.name}, {"prompt", sample.prompt}, {"truth", sample.truth}};
      line["output"] = nullptr;
      line["correct"] = nullptr;
      if (options.generate) {
        line["output"] = sample.output;
        line["correct"] = sample.correct;
      }
      answers->write(line);
    };
  }
  const EvalResult result = evaluate_with_progress(job, sources, options, "held-out");
  if (answers != nullptr) answers->flush();
  std::optional<EvalResult> swapped;
  if (flags.swapped && options.generate && !stop_requested()) {
    options.swapped = true;
    options.show = 0;
    options.on_answer = {};
    swapped = evaluate_with_progress(job, sources, options, "swapped");
  }
  if (stop_requested()) return stop_exit_code();
  print(state.step, options, result, swapped);
  if (!flags.json.empty()) write_json(flags, checkpoint, state.step, options, result, swapped);
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
  command->add_option("--data", flags->data,
                      "score these instead: files of samples (.jsonl, .json) or folders of pictures with captions");
  command->add_option("--json", flags->json, "write the numbers to this file");
  command->add_option("--answers", flags->answers,
                      "write each sample's prompt, truth and output to this file (.jsonl)");
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
