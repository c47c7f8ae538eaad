#include "pipelines/training_run.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/comm/loopback.h"
#include "core/config/yaml_writer.h"
#include "core/observe/progress.h"
#include "core/parallel/memory_meter.h"
#include "pipelines/evaluator.h"
#include "pipelines/machine.h"
#include "pipelines/mix_request.h"
#include "pipelines/parallel_section.h"
#include "pipelines/plan.h"
#include "pipelines/run_folder.h"
#include "pipelines/wire_forecast.h"
#include "pipelines/world_run.h"

namespace loom {
namespace {

constexpr int64_t kEarlyTimeline = 2;  // a step; the first one is slow

}  // namespace

std::string TrainFlags::recipe_file() const { return resume.empty() ? recipe : resolved_recipe_of(resume); }

TrainingRun::TrainingRun(const TrainFlags& flags, Communicator& comm, const RankPlace& place)
    : comm_(comm), resumed_(!flags.resume.empty()) {
  install_memory_meter();
  job_ = make_job(flags.recipe_file(), flags.overrides, comm_, place);
  const ConfigValue& train = job_.recipe.train();
  steps_ = train.get_int("steps");
  if (const auto& range = flags.profile_steps; range.has_value())
    LOOM_CHECK_USER(range->first <= steps_, "--profile-steps ", range->first, ":", range->last,
                    ": the run ends at step ", steps_);
  optimizer_ = make_optimizer(read_optimizer(train), job_.model->buffers());
  trainer_ = std::make_unique<Trainer>(*job_.model, *optimizer_,
                                       TrainerOptions{read_schedule(train, steps_), train.get_number("clip"), [this] {
                                                        if (saver_ != nullptr) saver_->wait_copied();
                                                      }});
  if (leader()) open_run(flags);
  feed_ = std::make_unique<StepFeed>(comm_, loader_.get(), job_.recipe.data().get_int("budget"), job_.layout);
  const ScopedTimeout patience(comm_, 0);  // ranks construct one after another
  run_ = comm_.broadcast("training: set-up", world_group(comm_.world()), 0, run_);
  if (resumed_) restore();
  if (leader() && flags.profile) open_profile(flags);
  clock_ = std::make_unique<StepClock>(*job_.model);
  if (alone()) return;
  std::vector<std::string> components;
  for (const BoundComponent* component : job_.model->components()) components.push_back(component->name());
  ranks_ = std::make_unique<RankGather>(comm_, std::move(components));
}

void TrainingRun::open_run(const TrainFlags& flags) {
  auto sources = job_.sources("train");
  int64_t samples = 0;
  for (const auto& source : sources) samples += source->size();
  if (job_.recipe.eval().get_int("every") > 0) eval_sources_ = job_.sources("eval");
  const std::string tokenizer = job_.tokenizer_file.empty() ? "" : read_text(job_.tokenizer_file);
  run_ = resumed_ ? flags.resume : make_run_folder(job_.recipe.name(), flags.run, flags.replace);
  if (!tokenizer.empty()) write_file_atomic(run_ + "/" + kKeptTokenizer, tokenizer);
  if (!resumed_) keep_recipe();
  loader_ = make_loader(job_, std::move(sources), run_);
  observer_ = std::make_unique<RunObserver>(job_, run_, samples);
}

void TrainingRun::keep_recipe() { write_file_atomic(run_ + "/" + kResolvedRecipe, write_yaml(job_.recipe.tree)); }

void TrainingRun::open_profile(const TrainFlags& flags) {
  const int64_t before = state_.step;
  ProfileRange range;
  if (flags.profile_steps.has_value()) {
    range = *flags.profile_steps;
    LOOM_CHECK_USER(range.last > before, "--profile-steps ", range.first, ":", range.last, ": the run goes on at step ",
                    before + 1);
  } else {
    // A run of fewer steps shows those that it has.
    range.first = std::max<int64_t>(1, std::min(before + range.first, steps_ - 2));
    range.last = before + range.last;
  }
  const std::string file = flags.profile_file.empty() ? run_ + "/trace.json" : flags.profile_file;
  profile_ = std::make_unique<StepProfile>(*job_.model, file, range);
}

void TrainingRun::restore() {
  std::string folder;
  if (leader()) {
    const auto latest = latest_checkpoint(run_);
    if (latest.has_value()) folder = latest->folder;
  }
  folder = comm_.broadcast("training: checkpoint", world_group(comm_.world()), 0, folder);
  const double begin = system_clock_seconds();
  if (!folder.empty()) state_ = restore_run(folder, *job_.model, *optimizer_, loader_.get());
  saved_ = state_.step;
  if (!leader()) return;
  observer_->tell("load_seconds", system_clock_seconds() - begin);
  keep_recipe();  // not before: a change that the checkpoint refuses would stay
  if (folder.empty()) {
    log_warn(run_, ": no complete checkpoint; starting at step 1");
  } else {
    log_info("resume  ", folder);
  }
}

int TrainingRun::run() {
  try {
    start();
    while (state_.step < steps_ && (first_.has_value() || !stopped())) one_step();
    if (profile_ != nullptr) profile_->finish();
    if (saved_ != state_.step) save();
    if (saver_ != nullptr) saver_->finish();
  } catch (const std::exception& error) {
    if (!leader() && saver_ != nullptr) saver_->poll();  // a save that failed is why the other ranks have left
    if (leader()) {
      try {
        observer_->end(state_, "failed", error.what(), *loader_);
      } catch (const std::exception&) {
        // The first error is the one to tell.
      }
    }
    throw;
  }
  if (!leader()) return 0;
  const bool whole = state_.step >= steps_;
  observer_->end(state_, whole ? "finished" : "interrupted", "", *loader_);
  if (stopped()) {
    log_info("saved step ", state_.step, " · resume: omniloom train --resume ", run_);
    return stop_exit_code();
  }
  log_info("done    ", state_.step, " steps in ", human_duration(state_.train_seconds), " · ", run_, "/report.html");
  return 0;
}

// The head comes in two parts: how full microbatches are is only known of a step that was read.
void TrainingRun::start() {
  if (leader()) {
    observer_->begin(state_, resumed_);
    observer_->print_head();
  }
  if (state_.step < steps_ && !stopped()) {
    const double begin = system_clock_seconds();
    first_ = next_step();
    first_seconds_ = system_clock_seconds() - begin;
  }
  if (leader()) observer_->print_data(first_.has_value() ? &first_->plan : nullptr);
}

// Several ranks must leave the loop together, so only what all of them have been told counts.
bool TrainingRun::stopped() const { return alone() ? stop_requested() : stop_agreed_; }

// Rank 0 may wait for its data as long as it likes; a rank that fails is noticed all the same.
LoadedStep TrainingRun::next_step() {
  const ScopedTimeout patience(comm_, 0);
  const ObservedAction action(job_.model->observer(), StepAction::data);
  if (leader()) take_up_mix_request(run_, *loader_);
  return feed_->next();
}

void TrainingRun::one_step() {
  if (profile_ != nullptr) profile_->begin_step(state_.step + 1);
  clock_->begin_step(std::exchange(first_seconds_, 0));
  const LoadedStep loaded = first_.has_value() ? *std::exchange(first_, std::nullopt) : next_step();
  if (leader() && !costed_) observer_->tell("startup_seconds", process_age_seconds());
  if (ranks_ != nullptr) ranks_->begin_step();
  const StepStats stats = trainer_->step(loaded);
  const StepTime time = clock_->end_step();
  if (profile_ != nullptr) profile_->end_step(stats.step);
  state_.step = stats.step;
  state_.train_seconds += time.seconds;
  state_.tokens += stats.tokens;
  state_.samples += stats.samples;
  stop_agreed_ = stats.stop;
  const std::optional<RankTable> table = ranks_ != nullptr ? ranks_->gather(time, loaded.plan) : std::nullopt;
  const RankTimeline timeline = timeline_due(stats) ? gather_timeline(comm_, *clock_) : RankTimeline{};
  if (leader()) show_step(loaded, stats, time, table, timeline);
  if (due(job_.recipe.eval().get_int("every"))) evaluate_together();
  if (leader()) observer_->end_step(*loader_);
  if (saver_ != nullptr && saver_->poll() && leader()) {
    observer_->tell("save_stall_seconds", saver_->stats().stall_seconds);
    observer_->tell("save_seconds", saver_->stats().disk_seconds);
  }
  if (due(job_.recipe.checkpoint().get_int("every"))) save();
}

// Whenever a report may follow, and once early, so that one that is written soon has a picture.
bool TrainingRun::timeline_due(const StepStats& stats) const {
  return stats.stop || stats.step == steps_ || stats.step == kEarlyTimeline ||
         due(job_.recipe.eval().get_int("every")) || due(job_.recipe.checkpoint().get_int("every"));
}

void TrainingRun::show_step(const LoadedStep& loaded, const StepStats& stats, const StepTime& time,
                            const std::optional<RankTable>& table, const RankTimeline& timeline) {
  if (!costed_) learn_cost(loaded);
  observer_->step_done(loaded.plan, stats, time, *loader_, state_);
  if (table.has_value()) observer_->ranks_done(loaded.plan, *table);
  if (!timeline.ranks.empty()) observer_->timeline(timeline);
}

// After the first step, so that nobody waits for it. A plugin that does not run without memory leaves the numbers out.
void TrainingRun::learn_cost(const LoadedStep& loaded) {
  costed_ = true;
  cost_ = try_step_cost(job_, loaded.plan);
  if (cost_ == nullptr) return;
  observer_->set_cost(cost_.get());
  if (!alone()) {  // plans are of one rank
    observer_->predict_wire(wire_forecast(job_, loaded));
    return;
  }
  observer_->set_plan(plan_rows(plan_memory(job_, batch_from_step(loaded)), job_));
}

// Rank 0 evaluates with weights that all ranks have gathered for it; until it is done the others wait.
void TrainingRun::evaluate_together() {
  if (alone()) return evaluate_here();
  job_.model->hold_weights();
  if (leader()) evaluate_here();
  {
    const ScopedTimeout patience(comm_, 0);
    comm_.barrier("training: evaluation", world_group(comm_.world()));
  }
  job_.model->release_weights();
}

void TrainingRun::evaluate_here() {
  EvalOptions options = read_eval_options(job_.recipe.eval());
  options.show = options.generate ? kShownSamples : 0;
  options.pool = job_.pool.get();
  const EvalResult result = evaluate(*job_.model, *job_.tokenizer, *job_.preparer, eval_sources_, options);
  if (result.samples == 0 || stop_requested()) return;  // a part of the samples is no evaluation
  observer_->evaluated(options, result);
}

void TrainingRun::save() {
  const ConfigValue& checkpoint = job_.recipe.checkpoint();
  if (saver_ == nullptr) {
    const WriterOptions options{checkpoint.get_bool("async"), checkpoint.get_int("keep")};
    saver_ = std::make_unique<RunSaver>(run_, options, *job_.model, *optimizer_);
  }
  saver_->save(state_, loader_.get());
  saved_ = state_.step;
  if (leader()) observer_->saved(*loader_);
}

int train(const TrainFlags& flags) {
  const RankPlace place = place_from_environment();
  LOOM_CHECK_USER(place.world == 1 || flags.loopback == 1, "--loopback ", flags.loopback, " goes without the ",
                  place.world, " ranks that ", place.launcher, " has started");
  if (place.world > 1) return train_in_world(flags, place);
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
