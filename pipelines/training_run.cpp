#include "pipelines/training_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/comm/loopback.h"
#include "core/config/yaml_writer.h"
#include "pipelines/evaluator.h"
#include "pipelines/parallel_section.h"
#include "pipelines/run_folder.h"

namespace loom {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Log lines make the progress line step aside for as long as it is there, also when an error ends the run.
class StepAside {
 public:
  explicit StepAside(Progress& progress) {
    set_log_before_line([&progress] { progress.step_aside(); });
  }
  ~StepAside() { set_log_before_line({}); }
  StepAside(const StepAside&) = delete;
  StepAside& operator=(const StepAside&) = delete;
};

}  // namespace

std::string TrainFlags::recipe_file() const { return resume.empty() ? recipe : resolved_recipe_of(resume); }

TrainingRun::TrainingRun(const TrainFlags& flags, Communicator& comm) : comm_(comm), resumed_(!flags.resume.empty()) {
  job_ = make_job(flags.recipe_file(), flags.overrides, comm_);
  const ConfigValue& train = job_.recipe.train();
  steps_ = train.get_int("steps");
  optimizer_ = make_optimizer(read_optimizer(train), job_.model->buffers());
  trainer_ = std::make_unique<Trainer>(*job_.model, *optimizer_,
                                       TrainerOptions{read_schedule(train, steps_), train.get_number("clip")});
  if (leader()) open_run(flags);
  feed_ = std::make_unique<StepFeed>(comm_, loader_.get(), job_.recipe.data().get_int("budget"), job_.layout);
  const ScopedTimeout patience(comm_, 0);  // ranks construct one after another
  comm_.barrier("training: set-up", world_group(comm_.world()));
  if (resumed_) restore();
}

void TrainingRun::open_run(const TrainFlags& flags) {
  auto sources = job_.sources("train");
  for (const auto& source : sources) samples_ += source->size();
  if (job_.recipe.eval().get_int("every") > 0) eval_sources_ = job_.sources("eval");
  run_ = resumed_ ? flags.resume : make_run_folder(job_.recipe.name(), flags.run, flags.replace);
  write_file_atomic(run_ + "/" + kResolvedRecipe, write_yaml(job_.recipe.tree));
  loader_ = make_loader(job_, std::move(sources), run_ + "/skips.jsonl");
  metrics_ = std::make_unique<MetricsWriter>(run_ + "/metrics.jsonl");
}

void TrainingRun::restore() {
  std::string folder;
  if (leader()) {
    const auto latest = latest_checkpoint(run_);
    if (latest.has_value()) folder = latest->folder;
  }
  folder = comm_.broadcast("training: checkpoint", world_group(comm_.world()), 0, folder);
  if (!folder.empty()) state_ = restore_run(folder, *job_.model, *optimizer_, loader_.get());
  saved_ = state_.step;
  if (!leader()) return;
  if (folder.empty()) {
    log_warn(run_, ": no complete checkpoint; starting at step 1");
  } else {
    log_info("resume  ", folder);
  }
  metrics_->truncate_after(state_.step);
}

int TrainingRun::run() {
  std::unique_ptr<StepAside> step_aside;
  if (leader()) {
    print_head();
    progress_ = std::make_unique<Progress>(stderr, ProgressPolicy::detect(stderr));
    step_aside = std::make_unique<StepAside>(*progress_);
  }
  while (state_.step < steps_ && !stopped()) one_step();
  if (saved_ != state_.step) save();
  if (!leader()) return 0;
  progress_->finish();
  step_aside.reset();
  if (stopped()) {
    log_info("saved step ", state_.step, " · resume: omniloom train --resume ", run_);
    return stop_exit_code();
  }
  log_info("done    ", state_.step, " steps in ", human_duration(state_.train_seconds), " · ", run_);
  return 0;
}

// Several ranks must leave the loop together, so only what all of them have been told counts.
bool TrainingRun::stopped() const { return alone() ? stop_requested() : stop_agreed_; }

void TrainingRun::print_head() const {
  const std::string threads = concat(job_.threads, job_.threads == 1 ? " thread" : " threads");
  const std::string ranks =
      alone() ? "1 rank · cpu, " + threads : concat(comm_.world(), " ranks (loopback) · cpu, ", threads, " each");
  log_info("omniloom ", kVersion, " · ", ranks, ", ", job_.recipe.train().get_string("precision"));
  log_info("model   ", model_line(job_));
  if (!alone()) {
    for (const std::string& line : layout_lines(job_.layout, *job_.model)) log_info("layout  ", line);
  }
  const size_t sources = job_.recipe.data().at("train").items().size();
  log_info("data    ", with_commas(samples_), " samples in ", sources, " source", sources == 1 ? "" : "s", " · budget ",
           job_.recipe.data().get_int("budget"));
  log_info("run     ", run_);
}

// Rank 0 may wait for its data as long as it likes; a rank that fails is noticed all the same.
LoadedStep TrainingRun::next_step() {
  const ScopedTimeout patience(comm_, 0);
  return feed_->next();
}

void TrainingRun::one_step() {
  const double start = now();
  const LoadedStep loaded = next_step();
  const double ready = now();
  const StepStats stats = trainer_->step(loaded);
  const double seconds = now() - start;
  state_.step = stats.step;
  state_.train_seconds += seconds;
  state_.tokens += stats.tokens;
  state_.samples += stats.samples;
  stop_agreed_ = stats.stop;
  MetricsLine line;
  if (leader()) {
    line = metrics_of(stats, seconds, ready - start);
    show(stats, seconds, ready - start);
  }
  if (due(job_.recipe.eval().get_int("every"))) evaluate_together(line);
  if (leader()) metrics_->write(line);
  if (due(job_.recipe.checkpoint().get_int("every"))) save();
}

MetricsLine TrainingRun::metrics_of(const StepStats& stats, double seconds, double data_seconds) const {
  MetricsLine line{stats.step, {}};
  line.add("loss", stats.loss).add("lr", stats.lr).add("grad_norm", stats.grad_norm);
  line.add("samples", stats.samples).add("tokens", stats.tokens).add("supervised", stats.supervised);
  line.add("microbatches", stats.microbatches).add("skipped", loader_->state().skipped);
  line.add("seconds", seconds).add("data_seconds", data_seconds);
  line.add("tokens_per_second", static_cast<double>(stats.tokens) / std::max(seconds, 1e-9));
  if (!alone()) line.add("bytes_sent", stats.bytes_sent);
  for (const auto& [name, value] : stats.interior) line.add("loss/" + name, value);
  return line;
}

// Rates are averages over about 20 steps, for the eye only.
void TrainingRun::show(const StepStats& stats, double seconds, double data_seconds) {
  const double keep = seconds_per_step_ == 0 ? 0 : 0.95;
  const double rate = static_cast<double>(stats.tokens) / std::max(seconds, 1e-9);
  seconds_per_step_ = keep * seconds_per_step_ + (1 - keep) * seconds;
  tokens_per_second_ = keep * tokens_per_second_ + (1 - keep) * rate;
  data_fraction_ = keep * data_fraction_ + (1 - keep) * data_seconds / std::max(seconds, 1e-9);
  shown_.step = stats.step;
  shown_.steps = steps_;
  shown_.loss = stats.loss;
  shown_.tokens_per_second = tokens_per_second_;
  shown_.data_fraction = data_fraction_;
  shown_.seconds_left = seconds_per_step_ * static_cast<double>(steps_ - stats.step);
  progress_->update(shown_);
}

// Rank 0 evaluates with weights that all ranks have gathered for it; until it is done the others wait.
void TrainingRun::evaluate_together(MetricsLine& line) {
  if (alone()) return evaluate_here(line);
  job_.model->hold_weights();
  if (leader()) evaluate_here(line);
  {
    const ScopedTimeout patience(comm_, 0);
    comm_.barrier("training: evaluation", world_group(comm_.world()));
  }
  job_.model->release_weights();
}

void TrainingRun::evaluate_here(MetricsLine& line) {
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
  progress_->update(shown_);
}

void TrainingRun::save() {
  save_run(run_, job_.recipe.checkpoint().get_int("keep"), state_, *job_.model, *optimizer_, loader_.get());
  saved_ = state_.step;
}

int train(const TrainFlags& flags) {
  if (flags.loopback == 1) return TrainingRun(flags, alone()).run();
  int threads = 1;
  {
    // Every mistake that can be seen without a model is told before there are ranks.
    const Job job = read_job(flags.recipe_file(), flags.overrides);
    read_layout(job.recipe, flags.loopback);
    threads = threads_per_rank(job.recipe, flags.loopback);
  }
  LoopbackOptions options;
  options.threads = threads;
  int code = 0;
  run_loopback(flags.loopback, options, [&](Communicator& comm) {
    const int mine = TrainingRun(flags, comm).run();
    if (comm.rank() == 0) code = mine;
  });
  return code;
}

}  // namespace loom
