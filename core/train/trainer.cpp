#include "core/train/trainer.h"

#include <cmath>

#include "core/base/error.h"
#include "core/data/batch_builder.h"
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

}  // namespace

Trainer::Trainer(MultimodalModel& model, Optimizer& optimizer, TrainerOptions options)
    : model_(model), optimizer_(optimizer), options_(std::move(options)) {}

StepStats Trainer::step(const LoadedStep& loaded) {
  const StepPlan& plan = loaded.plan;
  StepStats stats;
  stats.step = plan.step;
  stats.lr = learning_rate(options_.schedule, plan.step);
  stats.samples = static_cast<int64_t>(plan.samples.size());
  stats.tokens = plan.tokens;
  stats.supervised = plan.supervised;
  stats.microbatches = static_cast<int64_t>(plan.microbatches.size());
  if (plan.supervised == 0) return stats;

  const Denominators denominators = denominators_of(plan);
  model_.zero_gradients();
  double loss_sum = 0;
  for (size_t m = 0; m < plan.microbatches.size(); ++m) {
    const MicrobatchResult result = model_.forward_backward(build_batch(loaded, m, model_), plan.step, denominators);
    loss_sum += result.loss_sum;
    for (const auto& [name, value] : result.interior) stats.interior[name] += value;
    stats.counters.units_run += result.counters.units_run;
    stats.counters.units_recomputed += result.counters.units_recomputed;
    stats.counters.units_skipped_empty += result.counters.units_skipped_empty;
  }
  stats.loss = loss_sum / denominators.supervised_tokens;
  const GradNorm norm = gradient_norm(model_.buffers());
  stats.grad_norm = norm.total;
  stats.component_norms = norm.components;
  if (!std::isfinite(stats.loss) || !norm.finite()) {
    throw UserError(concat("step ", plan.step, ": ",
                           norm.finite() ? "the loss" : concat("the gradient of ", norm.not_finite),
                           " is not finite (loss ", stats.loss, ", lr ", stats.lr,
                           "); the step was not taken; try a lower train.lr or train.clip"));
  }
  optimizer_.step(stats.lr, clip_factor(norm.total, options_.clip));
  stats.updated = true;
  return stats;
}

}  // namespace loom
