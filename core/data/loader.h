#pragma once
// Steps from samples. The samples of step k follow from the recipe and k alone: verdicts are consumed in the order of
// samples, however fast each was prepared, and packing comes afterwards (design, idea 6). Samples are prepared ahead in
// the thread pool.
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/config/config_value.h"
#include "core/data/loader_state.h"
#include "core/data/mix_journal.h"
#include "core/data/order.h"
#include "core/data/preparer.h"
#include "core/data/sample.h"
#include "core/data/skip_journal.h"
#include "core/data/source.h"
#include "core/step/step_plan.h"

namespace loom {

struct BatchSize {
  enum class Unit { samples = 1, tokens };
  int64_t count = 64;
  Unit unit = Unit::samples;
  std::string str() const;  // "64 samples"
};

// "64 samples", "262144 tokens", or a number of samples. UserError with mark otherwise.
BatchSize parse_batch(const ConfigValue& value);

struct LoaderOptions {
  BatchSize batch;
  bool shuffle = true;
  uint64_t seed = 0;
  double max_skip_rate = 0.05;       // judged from 100 samples on
  int64_t prefetch_steps = 2;        // prepared ahead
  int64_t prefetch_bytes = 1 << 30;  // of prepared samples that wait
  std::string journal;               // path of skips.jsonl; empty = in memory only
  std::vector<MixSegment> mix;       // of the recipe; empty = what the sources say themselves
  std::string mix_journal;           // path of mix.jsonl, whose changes are made again; empty = in memory only
  WorldLayout layout;                // of the ranks that the plan is for
};

struct LoadedStep {
  StepPlan plan;
  std::vector<PreparedSample> samples;  // parallel to plan.samples; on several ranks those of this rank have contents
  LoaderState after;                    // to be saved with the weights of this step
};

class StepLoader {
 public:
  // Preparer and pool must outlive the loader.
  StepLoader(std::vector<std::shared_ptr<Source>> sources, const Preparer& preparer, ThreadPool& pool,
             LoaderOptions options);
  ~StepLoader();
  StepLoader(const StepLoader&) = delete;
  StepLoader& operator=(const StepLoader&) = delete;

  // The next step. A batch of tokens is filled up to its size, never above it unless a single sample is larger.
  // UserError when too many samples are skipped, or for one that the recipe says must not be.
  LoadedStep next();
  // After the last delivered step.
  const LoaderState& state() const { return committed_; }
  // Continues exactly behind the step that the state was taken after. Changes of the mix that the journal holds for
  // later samples are made again.
  void restore(const LoaderState& state);

  // Other weights, parallel to the sources, from the first sample on that no step has consumed: those of the next step.
  // What was prepared ahead is given up and prepared again in its turn. The mix of the recipe's later stages is
  // dropped. Nothing for a request that was carried out before (by its id); else where the change begins.
  std::optional<uint64_t> change_mix(const std::vector<double>& weights, const std::string& id);

  // Skips of the run so far, those before a resume included when there is a journal.
  std::vector<SkipRecord> skips() const { return journal_.before(committed_.position); }
  const SampleOrder& order() const { return order_; }
  const LoaderOptions& options() const { return options_; }

 private:
  struct Waiting {
    uint64_t position = 0;
    Task<PreparedSample> task;
    std::optional<PreparedSample> ready;
  };
  // What tasks share with the loader; outlives both.
  struct Shared {
    std::atomic<bool> stop{false};
    std::atomic<int64_t> bytes{0};
  };

  LoadedStep collect();
  void fill();
  PreparedSample& front();
  void pop_front();
  void note_skip(const PreparedSample& sample);
  void check_skip_rate() const;
  void discard();
  void count_epochs(LoaderState& state) const;

  std::vector<std::shared_ptr<Source>> sources_;
  const Preparer& preparer_;
  ThreadPool& pool_;
  LoaderOptions options_;
  SampleOrder order_;
  SkipJournal journal_;
  MixJournal mix_journal_;
  LoaderState committed_, current_;  // current_ moves while a step is collected
  int64_t unusable_in_a_row_ = 0;
  int64_t samples_per_step_ = 0;  // of the last step
  std::deque<Waiting> window_;    // positions from current_.position on
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace loom
