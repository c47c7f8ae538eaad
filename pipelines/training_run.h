#pragma once
// One run of `omniloom train` on one rank: the loop around Trainer::step with data, metrics, evaluation, saving and
// stopping. Rank 0 alone reads data and talks to files and people; the others take part in every step, every
// evaluation and every save, and leave the loop after the same step.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/rank_place.h"
#include "core/data/step_feed.h"
#include "core/train/rank_table.h"
#include "core/train/rank_timeline.h"
#include "core/train/trainer.h"
#include "pipelines/job.h"
#include "pipelines/run_observer.h"
#include "pipelines/run_state.h"
#include "pipelines/step_cost.h"
#include "pipelines/step_profile.h"

namespace loom {

struct TrainFlags {
  std::string recipe, run, resume;  // with resume, the recipe is the run's own
  bool replace = false;
  int loopback = 1;  // ranks, as threads of this process
  bool profile = false;
  std::string profile_file;                   // "" = trace.json in the run folder
  std::optional<ProfileRange> profile_steps;  // nothing = the third to the fifth step from the start
  std::vector<std::string> overrides;

  std::string recipe_file() const;
};

class TrainingRun {
 public:
  // On all ranks together. The communicator must outlive the run. `place` is that of a rank with a process of its own.
  TrainingRun(const TrainFlags& flags, Communicator& comm, const RankPlace& place = {});
  // Trains to the end or until somebody asks to stop; returns the exit code.
  int run();

  const Job& job() const { return job_; }
  const std::string& folder() const { return run_; }
  // What is shown of the run; null but on rank 0. Before run().
  RunObserver* observer() { return observer_.get(); }

 private:
  bool leader() const { return comm_.rank() == 0; }
  bool alone() const { return comm_.world() == 1; }
  bool stopped() const;
  void open_run(const TrainFlags& flags);  // rank 0: sources, folder, files
  void keep_recipe();                      // in the run folder
  void open_profile(const TrainFlags& flags);
  void restore();
  void start();
  LoadedStep next_step();
  void one_step();
  void learn_cost(const LoadedStep& loaded);  // rank 0: what a step costs, for rates and the report
  bool timeline_due(const StepStats& stats) const;
  void show_step(const LoadedStep& loaded, const StepStats& stats, const StepTime& time,
                 const std::optional<RankTable>& table, const RankTimeline& timeline);  // rank 0
  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }
  void evaluate_together();
  void evaluate_here();
  void save();

  Communicator& comm_;
  bool resumed_;
  Job job_;
  int64_t steps_ = 0, saved_ = -1;
  bool stop_agreed_ = false;            // of the last step, by all ranks
  std::unique_ptr<StepLoader> loader_;  // rank 0
  std::unique_ptr<StepFeed> feed_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<RunSaver> saver_;                    // from the first save on
  std::vector<std::shared_ptr<Source>> eval_sources_;  // rank 0
  std::string run_;                                    // its folder
  std::unique_ptr<StepCost> cost_;                     // rank 0, from the first step on
  std::unique_ptr<StepProfile> profile_;               // rank 0, when asked for; outlives the clock
  std::unique_ptr<StepClock> clock_;
  std::unique_ptr<RankGather> ranks_;      // where there are several
  std::unique_ptr<RunObserver> observer_;  // rank 0
  RunState state_;
  std::optional<LoadedStep> first_;  // read ahead of the loop, so that the head can tell of it; always consumed
  double first_seconds_ = 0;         // that reading it took
  bool costed_ = false;
};

// Runs on flags.loopback ranks, or as the rank that launchers have made of this process, and returns the exit code. An
// error of any rank of a loopback is thrown once.
int train(const TrainFlags& flags);

}  // namespace loom
