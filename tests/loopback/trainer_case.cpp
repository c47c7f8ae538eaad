#include "tests/loopback/trainer_case.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/comm/loopback.h"

namespace loom::test {

std::vector<std::vector<StepStats>> train_plans(const ModelSpec& spec, const RunData& data,
                                                const std::vector<StepPlan>& plans) {
  const int world = plans.front().layout.world;
  std::vector<std::vector<StepStats>> out(static_cast<size_t>(world));
  run_loopback(world, {60, 1, 0}, [&](Communicator& comm) {
    const auto model = make_model(spec, {}, plans.front().layout, &comm);
    OptimizerConfig config;
    config.kind = "sgd";
    const auto optimizer = make_optimizer(config, model->buffers());
    TrainerOptions options;
    options.schedule.lr = 0.01;
    options.schedule.kind = "constant";
    options.schedule.steps = static_cast<int64_t>(plans.size());
    Trainer trainer(*model, *optimizer, options);
    for (size_t s = 0; s < plans.size(); ++s) {
      LoadedStep step;
      step.plan = plans[s];
      step.samples = data[s];
      const std::vector<UnitBuffer*> buffers = model->buffers();
      std::vector<Tensor> before;
      for (UnitBuffer* buffer : buffers) before.push_back(buffer->master().clone());
      out[static_cast<size_t>(comm.rank())].push_back(trainer.step(step));
      if (plans[s].supervised > 0) continue;
      for (size_t b = 0; b < buffers.size(); ++b)
        LOOM_CHECK(before[b].equal(buffers[b]->master()), "step ", s + 1, " changed weights of ", buffers[b]->unit());
    }
  });
  return out;
}

std::vector<StepStats> train_alone(const ModelSpec& spec, const RunData& data) {
  std::vector<StepPlan> plans;
  for (size_t s = 0; s < data.size(); ++s) plans.push_back(single_plan(data[s], static_cast<int64_t>(s) + 1));
  return train_plans(spec, data, plans).front();
}

Difference compare(const std::vector<StepStats>& reference, const std::vector<StepStats>& run) {
  LOOM_CHECK(reference.size() == run.size(), "runs of unequal length");
  Difference out;
  const auto note = [&](double a, double b, const std::string& where) {
    const double difference = a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), 1e-12);
    if (difference <= out.worst) return;
    out.worst = difference;
    out.where = where;
  };
  for (size_t s = 0; s < run.size(); ++s) {
    const StepStats &a = reference[s], &b = run[s];
    const std::string at = concat("step ", s + 1, ", the trainer's ");
    note(a.loss, b.loss, at + "loss");
    note(a.grad_norm, b.grad_norm, at + "norm");
    LOOM_CHECK(a.component_norms.size() == b.component_norms.size(), "norms of other components");
    for (size_t c = 0; c < a.component_norms.size(); ++c)
      note(a.component_norms[c].second, b.component_norms[c].second,
           concat(at, "norm of ", a.component_norms[c].first));
    for (const auto& [name, value] : a.interior) {
      const auto found = b.interior.find(name);
      note(value, found == b.interior.end() ? 0 : found->second, concat(at, "interior loss ", name));
    }
  }
  return out;
}

}  // namespace loom::test
