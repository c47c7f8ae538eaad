// `omniloom train`: the loop around Trainer::step: data, metrics, evaluation, saving, stopping.
#include <chrono>
#include <cstdio>
#include <iostream>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/config/yaml_writer.h"
#include "core/observe/metrics.h"
#include "core/observe/progress.h"
#include "core/train/trainer.h"
#include "pipelines/cli.h"
#include "pipelines/evaluator.h"
#include "pipelines/job.h"
#include "pipelines/run_folder.h"
#include "pipelines/run_state.h"

namespace loom {
namespace {

struct TrainFlags {
  std::string recipe, run, resume;
  bool replace = false;
  std::vector<std::string> overrides;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class TrainingRun {
 public:
  explicit TrainingRun(const TrainFlags& flags) : resumed_(!flags.resume.empty()) {
    job_ = make_job(resumed_ ? resolved_recipe_of(flags.resume) : flags.recipe, flags.overrides);
    const ConfigValue& train = job_.recipe.train();
    steps_ = train.get_int("steps");
    auto sources = job_.sources("train");
    samples_ = 0;
    for (const auto& source : sources) samples_ += source->size();
    optimizer_ = make_optimizer(read_optimizer(train), job_.model->buffers());
    trainer_ = std::make_unique<Trainer>(*job_.model, *optimizer_,
                                         TrainerOptions{read_schedule(train, steps_), train.get_number("clip")});
    if (job_.recipe.eval().get_int("every") > 0) eval_sources_ = job_.sources("eval");
    run_ = resumed_ ? flags.resume : make_run_folder(job_.recipe.name(), flags.run, flags.replace);
    write_file_atomic(run_ + "/" + kResolvedRecipe, write_yaml(job_.recipe.tree));
    loader_ = make_loader(job_, std::move(sources), run_ + "/skips.jsonl");
    metrics_ = std::make_unique<MetricsWriter>(run_ + "/metrics.jsonl");
    if (resumed_) restore();
  }

  int run() {
    print_head();
    Progress progress(stderr, ProgressPolicy::detect(stderr));
    set_log_before_line([&] { progress.step_aside(); });
    while (state_.step < steps_ && !stop_requested()) one_step(progress);
    if (saved_ != state_.step) save();
    progress.finish();
    set_log_before_line({});
    if (stop_requested()) {
      log_info("saved step ", state_.step, " · resume: omniloom train --resume ", run_);
      return stop_exit_code();
    }
    log_info("done    ", state_.step, " steps in ", human_duration(state_.train_seconds), " · ", run_);
    return 0;
  }

 private:
  void restore() {
    const auto latest = latest_checkpoint(run_);
    if (latest.has_value()) {
      state_ = restore_run(latest->folder, *job_.model, *optimizer_, *loader_);
      log_info("resume  ", latest->folder);
    } else {
      log_warn(run_, ": no complete checkpoint; starting at step 1");
    }
    saved_ = state_.step;
    metrics_->truncate_after(state_.step);
  }

  void print_head() {
    log_info("omniloom ", kVersion, " · 1 rank · cpu, ", job_.threads, job_.threads == 1 ? " thread, " : " threads, ",
             job_.recipe.train().get_string("precision"));
    log_info("model   ", model_line(job_));
    log_info("data    ", with_commas(samples_), " samples in ", job_.recipe.data().at("train").items().size(),
             " source", job_.recipe.data().at("train").items().size() == 1 ? "" : "s", " · budget ",
             job_.recipe.data().get_int("budget"));
    log_info("run     ", run_);
  }

  void one_step(Progress& progress) {
    const double start = now();
    const LoadedStep loaded = loader_->next();
    const double ready = now();
    const StepStats stats = trainer_->step(loaded);
    const double seconds = now() - start;
    state_.step = stats.step;
    state_.train_seconds += seconds;
    state_.tokens += stats.tokens;
    state_.samples += stats.samples;
    MetricsLine line{stats.step, {}};
    line.add("loss", stats.loss).add("lr", stats.lr).add("grad_norm", stats.grad_norm);
    line.add("samples", stats.samples).add("tokens", stats.tokens).add("supervised", stats.supervised);
    line.add("microbatches", stats.microbatches).add("skipped", loader_->state().skipped);
    line.add("seconds", seconds).add("data_seconds", ready - start);
    line.add("tokens_per_second", static_cast<double>(stats.tokens) / std::max(seconds, 1e-9));
    for (const auto& [name, value] : stats.interior) line.add("loss/" + name, value);
    smooth(seconds, ready - start, stats.tokens);
    shown_.step = stats.step;
    shown_.steps = steps_;
    shown_.loss = stats.loss;
    shown_.tokens_per_second = tokens_per_second_;
    shown_.data_fraction = data_fraction_;
    shown_.seconds_left = seconds_per_step_ * static_cast<double>(steps_ - stats.step);
    progress.update(shown_);
    if (due(job_.recipe.eval().get_int("every")) && !eval_sources_.empty()) evaluate_now(line, progress);
    metrics_->write(line);
    if (due(job_.recipe.checkpoint().get_int("every"))) save();
  }

  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  // Averages over about 20 steps, for the eye only.
  void smooth(double seconds, double data_seconds, int64_t tokens) {
    const double keep = seconds_per_step_ == 0 ? 0 : 0.95;
    seconds_per_step_ = keep * seconds_per_step_ + (1 - keep) * seconds;
    tokens_per_second_ = keep * tokens_per_second_ + (1 - keep) * static_cast<double>(tokens) / std::max(seconds, 1e-9);
    data_fraction_ = keep * data_fraction_ + (1 - keep) * data_seconds / std::max(seconds, 1e-9);
  }

  void evaluate_now(MetricsLine& line, Progress& progress) {
    const EvalOptions options = read_eval_options(job_.recipe.eval());
    const EvalResult result = evaluate(*job_.model, *job_.tokenizer, *job_.preparer, eval_sources_, options);
    if (result.samples == 0 || stop_requested()) return;  // a part of the samples is no evaluation
    line.add("eval_loss", result.loss);
    shown_.eval = result.loss;
    if (options.generate) {
      line.add("exact_match", result.exact_match());
      shown_.exact = result.exact_match();
    }
    line.add("eval_samples", result.samples).add("eval_seconds", result.seconds);
    progress.update(shown_);
  }

  void save() {
    save_run(run_, job_.recipe.checkpoint().get_int("keep"), state_, *job_.model, *optimizer_, *loader_);
    saved_ = state_.step;
  }

  bool resumed_;
  Job job_;
  int64_t steps_ = 0, samples_ = 0, saved_ = -1;
  std::unique_ptr<StepLoader> loader_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<std::shared_ptr<Source>> eval_sources_;
  std::string run_;
  std::unique_ptr<MetricsWriter> metrics_;
  RunState state_;
  ProgressState shown_;
  double seconds_per_step_ = 0, tokens_per_second_ = 0, data_fraction_ = 0;
};

int train(const TrainFlags& flags) {
  if (flags.resume.empty() && flags.recipe.empty()) {
    throw UserError("train needs a recipe: omniloom train recipe.yaml, or --resume RUN");
  }
  if (!flags.resume.empty() && (!flags.run.empty() || flags.replace))
    throw UserError("--resume goes without --run and --replace");
  TrainFlags settled = flags;
  if (!flags.resume.empty() && !flags.recipe.empty()) {
    // With --resume the recipe is the run's own; what stands first is then an override.
    LOOM_CHECK_USER(flags.recipe.find('=') != std::string::npos, "--resume takes the recipe from the run; leave out '",
                    flags.recipe, "'");
    settled.overrides.insert(settled.overrides.begin(), flags.recipe);
    settled.recipe.clear();
  }
  return TrainingRun(settled).run();
}

}  // namespace

void add_train_command(CLI::App& root, Command& run) {
  CLI::App* command =
      root.add_subcommand("train", "train from a recipe; any recipe key can be set: train.lr=1e-4, --train.lr 1e-4");
  const auto flags = std::make_shared<TrainFlags>();
  command->add_option("recipe", flags->recipe, "recipe.yaml");
  command->add_option("--run", flags->run, "run folder; default runs/NAME-N");
  command->add_option("--resume", flags->resume, "go on with the newest complete checkpoint of this run");
  command->add_flag("--replace", flags->replace, "empty the --run folder if it holds an earlier run");
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return train(*flags); };
  });
}

}  // namespace loom
