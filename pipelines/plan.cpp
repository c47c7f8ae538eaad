// Two steps are taken, the second is measured: gradients, moments and tables exist by then. Which of the candidate
// microbatches needs most is found by trying each.
#include "pipelines/plan.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/nn/attention.h"
#include "core/parallel/memory_meter.h"
#include "core/train/trainer.h"
#include "pipelines/build_model.h"
#include "pipelines/step_cost.h"

namespace loom {
namespace {

const char* verb(StepAction action) {
  switch (action) {
    case StepAction::forward:
      return "forward of ";
    case StepAction::backward:
      return "backward of ";
    case StepAction::batch:
      return "building the batch";
    case StepAction::gradients:
      return "clearing the gradients";
    case StepAction::norm:
      return "the gradient norm";
    case StepAction::update:
      return "the update";
    case StepAction::data:
      return "waiting for data";
  }
  return "";
}

std::string describe(const PeakMoment& peak) {
  if (!peak.in_action)
    return peak.component.empty() ? "between actions" : concat("after ", peak.component, ".", peak.unit);
  const std::string what = verb(peak.action);
  return peak.component.empty() ? what : concat(what, peak.component, ".", peak.unit);
}

// "blocks.3.mlp" -> "blocks.*.mlp".
std::string without_numbers(const std::string& unit) {
  std::string out;
  for (size_t i = 0; i < unit.size(); ++i) {
    const bool begins = i == 0 || unit[i - 1] == '.';
    size_t end = i;
    while (end < unit.size() && std::isdigit(static_cast<unsigned char>(unit[end])) != 0) ++end;
    if (begins && end > i && (end == unit.size() || unit[end] == '.')) {
      out += '*';
      i = end - 1;
    } else {
      out += unit[i];
    }
  }
  return out;
}

std::vector<PlanUnits> units_of(const StepMeter& meter) {
  std::vector<PlanUnits> out;
  for (const UnitWork& unit : meter.units()) {
    const std::string name = without_numbers(unit.unit);
    const auto found = std::find_if(
        out.begin(), out.end(), [&](const PlanUnits& u) { return u.component == unit.component && u.units == name; });
    PlanUnits& units = found != out.end() ? *found : out.emplace_back();
    units.component = unit.component;
    units.units = name;
    ++units.count;
    units.forward += unit.forward;
    units.backward += unit.backward;
  }
  return out;
}

int64_t bytes(const Tensor& tensor) { return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0; }

// Of the copy that is written while training goes on: copies of the weights share the writing, and parts that tensor
// parallelism splits have fewer copies than what it does not.
int64_t snapshot_of(const BoundComponent& component, const PlanRow& row) {
  int64_t weights = 0;
  double written = 0;
  for (const auto& buffer : component.buffers()) {
    weights += bytes(buffer->master());
    written += static_cast<double>(bytes(buffer->master())) / buffer->copies();
  }
  if (weights == 0) return 0;
  return static_cast<int64_t>(static_cast<double>(row.weights + row.optimizer) *
                              (written / static_cast<double>(weights)));
}

PlanRow row_of(BoundComponent& component, int64_t all_state, int64_t all_trainable) {
  PlanRow row;
  row.component = component.name();
  row.params = component.params_total();
  row.trainable = component.params_trainable();
  row.layout = "1 rank";
  int64_t trainable = 0;
  for (const auto& buffer : component.buffers()) {
    row.weights += bytes(buffer->master());
    row.gradients += bytes(buffer->gradient());
    trainable += buffer->trainable() ? bytes(buffer->master()) : 0;
  }
  // State is of equal shape for all trainable buffers.
  if (all_trainable > 0)
    row.optimizer = static_cast<int64_t>(static_cast<double>(all_state) / static_cast<double>(all_trainable) *
                                         static_cast<double>(trainable));
  for (size_t s = 0; s < component.states().size(); ++s)
    row.weights += bytes(component.states().value_at(s)) + bytes(component.states().contribution_at(s));
  return row;
}

// The model, optimizer and trainer of a dry run.
struct DryRun {
  DryRun(const Job& job_of_run, std::optional<bool> recompute, Communicator* comm)
      : job(job_of_run),
        others(metered_live()),
        model(build_model(job.recipe, job.tokenizer->vocab_size(), *job.plugins,
                          {.comm = comm,
                           .layout = comm != nullptr ? job.layout : WorldLayout{},
                           .device = c10::Device(at::kMeta),
                           .recompute = recompute})),
        optimizer(make_optimizer(read_optimizer(job.recipe.train()), model->buffers())),
        trainer(*model, *optimizer, {}),
        meter(*model) {}

  TrainingPlan memory();

  const Job& job;
  int64_t others;  // bytes of other dry models
  std::unique_ptr<MultimodalModel> model;
  std::unique_ptr<Optimizer> optimizer;
  Trainer trainer;
  StepMeter meter;

 private:
  static int64_t metered_live() {
    install_memory_meter();
    return memory_use(c10::DeviceType::Meta).live;
  }
};

// What the meter saw since its last restart.
TrainingPlan DryRun::memory() {
  TrainingPlan plan;
  plan.units = units_of(meter);
  const PeakMoment& peak = meter.peak();
  int64_t trainable = 0;
  for (const UnitBuffer* buffer : model->buffers())
    trainable += buffer->trainable() ? bytes(const_cast<UnitBuffer*>(buffer)->master()) : 0;
  for (BoundComponent* component : model->components()) {
    PlanRow row = row_of(*component, optimizer->state_bytes(), trainable);
    const auto kept = peak.kept.find(row.component);
    if (kept != peak.kept.end()) row.activations += kept->second;
    if (peak.in_action && peak.component == row.component) row.activations += peak.transient;
    // It may have freed what the bridge had made; that is the last row's.
    row.activations = std::max<int64_t>(row.activations, 0);
    plan.weights += row.weights;
    plan.gradients += row.gradients;
    if (job.recipe.checkpoint().get_bool("async")) plan.snapshot += snapshot_of(*component, row);
    plan.rows.push_back(std::move(row));
  }
  for (const auto& [name, kept] : peak.kept) plan.kept += kept;
  plan.optimizer = optimizer->state_bytes();
  plan.gathered = model->slabs().slabs() * model->slabs().slab_bytes();
  plan.batch_bytes = peak.batch;
  plan.transient = peak.transient;
  plan.peak = peak.bytes - others;
  plan.tables = peak.before - others - plan.weights - plan.gradients - plan.optimizer - plan.gathered;
  plan.peak_at = describe(peak);
  PlanRow rest;
  rest.component = "batch and bridge";
  rest.activations = plan.activations();
  for (const PlanRow& row : plan.rows) rest.activations -= row.activations;
  plan.rows.push_back(std::move(rest));
  return plan;
}

// Memory of one microbatch; operations per unit of it.
TrainingPlan dry_run(const Job& job, const LoadedStep& microbatch, std::optional<bool> recompute = std::nullopt) {
  DryRun run(job, recompute, nullptr);
  run.trainer.step(microbatch);
  run.meter.restart();
  run.trainer.step(microbatch);
  TrainingPlan plan = run.memory();
  const auto most = std::max_element(microbatch.plan.microbatches.begin(), microbatch.plan.microbatches.end(),
                                     [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  for (const PlacedSample& placed : most->samples) {
    const Verdict& verdict = microbatch.plan.samples[static_cast<size_t>(placed.sample)];
    plan.tokens += verdict.tokens;
    plan.supervised += verdict.supervised;
    ++plan.samples;
  }
  return plan;
}

TrainingPlan worst_of(const Job& job, const PlanBatch& batch, std::optional<bool> recompute = std::nullopt) {
  LOOM_CHECK_USER(!batch.largest.empty(), job.recipe.file, ": there is no sample to plan with");
  TrainingPlan worst;
  for (const LoadedStep& microbatch : batch.largest) {
    TrainingPlan plan = dry_run(job, microbatch, recompute);
    if (plan.peak > worst.peak) worst = std::move(plan);
  }
  return worst;
}

void add_operations(const Job& job, const PlanBatch& batch, TrainingPlan& plan) {
  const StepCost cost(job, batch.steps.front());
  for (const StepPlan& step : batch.steps) {
    for (const auto& [component, operations] : cost.components(step)) {
      const double share = batch.repeat / static_cast<double>(batch.steps.size());
      const Operations scaled{operations.products * share, operations.attention * share, operations.again * share};
      plan.step += scaled;
      for (PlanRow& row : plan.rows) row.flops += row.component == component ? scaled.model() : 0;
    }
  }
}

// The worst that may come later; nothing when no sample can be invented.
std::optional<int64_t> full_budget(const Job& job) {
  try {
    return worst_of(job, synthetic_batch(job)).peak;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

TrainingPlan plan_memory(const Job& job, const PlanBatch& batch) {
  TrainingPlan plan = worst_of(job, batch);
  plan.batch = batch.words;
  plan.budget = job.recipe.data().get_int("budget");
  return plan;
}

TrainingPlan plan_training(const Job& job, const PlanBatch& batch) {
  TrainingPlan plan = plan_memory(job, batch);
  add_operations(job, batch, plan);
  if (!batch.synthetic && 20 * plan.tokens < 19 * plan.budget) plan.full_budget_peak = full_budget(job);
  if (10 * plan.activations() < plan.peak) return plan;  // other knobs than these decide
  if (!job.recipe.train().get_bool("recompute")) plan.recomputed_peak = worst_of(job, batch, true).peak;
  const int64_t half = plan.budget / 2;
  std::optional<PlanBatch> smaller = repacked(batch, half);
  if (!smaller.has_value() && batch.synthetic && batch.steps.front().samples.size() == 1 && half > 1)
    smaller = synthetic_batch(job, half);
  if (smaller.has_value() && 2 * plan.tokens > plan.budget) plan.half_budget_peak = worst_of(job, *smaller).peak;
  return plan;
}

TrainingPlan plan_training(const Job& job) { return plan_training(job, usual_batch(job)); }

RankPlan plan_rank(const Job& job, Communicator& comm, const std::vector<LoadedStep>& steps,
                   std::optional<bool> recompute) {
  LOOM_CHECK(!steps.empty(), "a rank is planned for no step");
  DryRun run(job, recompute, &comm);
  run.trainer.step(steps.front());
  run.meter.restart();
  RankPlan out;
  Operations before;
  for (const LoadedStep& step : steps) {
    comm.reset_counts();
    run.trainer.step(step);
    const Operations now = run.meter.total();
    out.steps.push_back(
        {comm.traffic(), {now.products - before.products, now.attention - before.attention, now.again - before.again}});
    before = now;
  }
  out.plan = run.memory();
  return out;
}

}  // namespace loom
