// The order is chosen so that a refused step leaves nothing behind: norm and statistics are known on all ranks before
// states or weights change.
#include "core/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ops/from_blob.h>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/comm/texts.h"
#include "core/data/batch_builder.h"
#include "core/parallel/memory_meter.h"
#include "core/train/grad_norm.h"

namespace loom {
namespace {

Denominators denominators_of(const StepPlan& plan) {
  Denominators d;
  d.supervised_tokens = static_cast<double>(std::max<int64_t>(plan.supervised, 1));
  d.rows = static_cast<double>(std::max<int64_t>(plan.tokens, 1));
  d.samples = static_cast<double>(std::max<size_t>(plan.samples.size(), 1));
  return d;
}

// Targets of this rank alone.
int64_t local_targets(const LoadedStep& loaded, const MultimodalModel& model) {
  int64_t count = 0;
  for (size_t m = 0; m < loaded.plan.microbatches.size(); ++m) count += build_batch(loaded, m, model).targets.size(0);
  return count;
}

// Visits the counters of which the sum over ranks is reported.
template <class Visit>
void each_counter(TapeCounters& counters, const Visit& visit) {
  for (int64_t* counter :
       {&counters.units_run, &counters.units_recomputed, &counters.units_skipped_empty,
        &counters.services.split_segments, &counters.services.halo_rows, &counters.services.split_sums}) {
    visit(*counter);
  }
}

void all_reduce(Communicator& comm, const char* what, std::vector<double>& values) {
  const auto count = static_cast<int64_t>(values.size());
  comm.all_reduce(what, world_group(comm.world()), at::from_blob(values.data(), {count}, at::kDouble));
}

}  // namespace

Trainer::Trainer(MultimodalModel& model, Optimizer& optimizer, TrainerOptions options)
    : model_(model), optimizer_(optimizer), options_(std::move(options)) {}

StepStats Trainer::step(const LoadedStep& loaded) {
  LOOM_CHECK(loaded.plan.layout.world == model_.comm().world(), "a plan for ", loaded.plan.layout.world, " ranks on ",
             model_.comm().world());
  end_memory_step();
  reset_memory_peak(model_.device().type());
  StepStats stats = run_step(loaded);
  stats.peak_bytes = memory_use(model_.device().type()).peak;
  return stats;
}

StepStats Trainer::run_step(const LoadedStep& loaded) {
  const StepPlan& plan = loaded.plan;
  Communicator& comm = model_.comm();
  StepStats stats;
  stats.step = plan.step;
  stats.lr = learning_rate(options_.schedule, plan.step);
  stats.samples = static_cast<int64_t>(plan.samples.size());
  stats.tokens = plan.tokens;
  stats.supervised = plan.supervised;
  stats.microbatches = static_cast<int64_t>(plan.microbatches.size());
  const int64_t sent_before = comm.bytes_sent();
  GradNorm norm;
  if (plan.supervised > 0) {
    run_microbatches(loaded, stats);
    const ObservedAction action(model_.observer(), StepAction::norm);
    norm = gradient_norm(model_.buffers(), comm);
    stats.grad_norm = norm.total;
    stats.component_norms = norm.components;
  }
  stats.bytes_sent = comm.bytes_sent() - sent_before;
  stats.stop = stop_requested();
  sum_over_ranks(stats);
  if (plan.supervised == 0) return stats;

  if (!std::isfinite(stats.loss) || !norm.finite()) refuse_not_finite(stats, norm.not_finite);
  const ObservedAction action(model_.observer(), StepAction::update);
  if (options_.before_update) options_.before_update();
  model_.end_step();
  optimizer_.step(stats.lr, clip_factor(norm.total, options_.clip));
  stats.updated = true;
  return stats;
}

void Trainer::run_microbatches(const LoadedStep& loaded, StepStats& stats) {
  const StepPlan& plan = loaded.plan;
  Denominators denominators = denominators_of(plan);
  if (fault(Fault::local_token_count)) {
    denominators.supervised_tokens = static_cast<double>(std::max<int64_t>(local_targets(loaded, model_), 1));
  }
  {
    const ObservedAction action(model_.observer(), StepAction::gradients);
    model_.zero_gradients();
  }
  double loss_sum = 0;
  for (size_t m = 0; m < plan.microbatches.size(); ++m) {
    ModelBatch batch;
    {
      const ObservedAction action(model_.observer(), StepAction::batch);
      batch = to_device(build_batch(loaded, m, model_), model_.device());
    }
    const MicrobatchResult result = model_.forward_backward(batch, plan.step, denominators);
    loss_sum += result.loss_sum;
    for (const auto& [name, value] : result.interior) stats.interior[name] += value;
    stats.counters += result.counters;
  }
  model_.finish_gradients();
  stats.loss = loss_sum / denominators.supervised_tokens;
}

// One exchange of a few numbers. Only when a rank meets an interior loss that it has not seen before do the ranks agree
// on the names first; that happens in the first steps of a run.
void Trainer::sum_over_ranks(StepStats& stats) {
  Communicator& comm = model_.comm();
  if (comm.world() == 1) return;
  const auto values_of = [&] {
    std::vector<double> values;
    for (const std::string& name : interior_names_) {
      const auto found = stats.interior.find(name);
      values.push_back(found == stats.interior.end() ? 0 : found->second);
    }
    return values;
  };
  bool unknown = false;
  for (const auto& [name, value] : stats.interior) {
    unknown = unknown || !std::binary_search(interior_names_.begin(), interior_names_.end(), name);
  }
  std::vector<double> sums{stats.loss, static_cast<double>(stats.bytes_sent), stats.stop ? 1.0 : 0.0,
                           unknown ? 1.0 : 0.0};
  each_counter(stats.counters, [&](const int64_t& counter) { sums.push_back(static_cast<double>(counter)); });
  const size_t fixed = sums.size();
  std::vector<double> interior = values_of();
  sums.insert(sums.end(), interior.begin(), interior.end());
  all_reduce(comm, "trainer: step statistics", sums);

  stats.loss = sums[0];
  stats.bytes_sent = std::llround(sums[1]);
  stats.stop = sums[2] > 0;
  size_t next = 4;
  each_counter(stats.counters, [&](int64_t& counter) { counter = std::llround(sums[next++]); });
  if (sums[3] > 0) {
    learn_interior_names(stats);
    interior = values_of();
    all_reduce(comm, "trainer: new interior losses", interior);
  } else {
    interior.assign(sums.begin() + static_cast<std::ptrdiff_t>(fixed), sums.end());
  }
  if (stats.supervised == 0) return;  // no rank has run anything
  for (size_t i = 0; i < interior_names_.size(); ++i) stats.interior[interior_names_[i]] = interior[i];
}

void Trainer::learn_interior_names(const StepStats& stats) {
  Communicator& comm = model_.comm();
  std::vector<std::string> mine;
  for (const auto& [name, value] : stats.interior) mine.push_back(name);
  std::set<std::string> all(interior_names_.begin(), interior_names_.end());
  for (const std::string& text : exchange_texts(comm, "trainer: names of interior losses", join(mine, "\n"))) {
    for (std::string& name : split(text, '\n')) {
      if (!name.empty()) all.insert(std::move(name));
    }
  }
  interior_names_.assign(all.begin(), all.end());
}

void Trainer::refuse_not_finite(const StepStats& stats, const std::string& parameter) {
  for (BoundComponent* component : model_.components()) component->states().clear_contributions();
  throw UserError(concat("step ", stats.step, ": ",
                         parameter.empty() ? "the loss" : concat("the gradient of ", parameter),
                         " is not finite (loss ", stats.loss, ", lr ", stats.lr,
                         "); the step was not taken; try a lower train.lr or train.clip"));
}

}  // namespace loom
