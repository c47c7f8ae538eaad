// The four shapes differ only in what they make of the progress since the warm-up, a number in [0, 1].
#include "core/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace loom {

double learning_rate(const ScheduleConfig& config, int64_t step) {
  LOOM_CHECK(step >= 1, "steps count from 1, got ", step);
  if (step <= config.warmup) return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup);
  const double span = static_cast<double>(std::max<int64_t>(config.steps - config.warmup, 1));
  const double progress = std::min(static_cast<double>(step - 1 - config.warmup) / span, 1.0);
  double height = 1;  // 1 at the peak, 0 at the floor
  if (config.kind == "linear") {
    height = 1 - progress;
  } else if (config.kind == "cosine") {
    height = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  } else if (config.kind == "wsd") {
    const double fall = std::min(config.cooldown * static_cast<double>(config.steps) / span, 1.0);
    height = fall > 0 ? std::min((1 - progress) / fall, 1.0) : 1;
  } else {
    LOOM_CHECK(config.kind == "constant", "schedule '", config.kind, "' should have been refused by the schema");
  }
  return config.lr * (config.min_ratio + (1 - config.min_ratio) * height);
}

void add_schedule_fields(Schema& train) {
  train.number("lr", 0, {0, 1e3}, "peak learning rate").required();
  train.integer("warmup", 0, {0, 1e12}, "steps in which the learning rate rises to its peak");
  train.choice("schedule", "cosine", {"constant", "linear", "cosine", "wsd"},
               "shape of the learning rate after the warm-up");
  train.number("min_lr_ratio", 0, {0, 1}, "where the schedule ends, as a share of lr");
  train.number("cooldown", 0.1, {0, 1}, "wsd: share of the run in which the learning rate falls");
}

ScheduleConfig read_schedule(const ConfigValue& train, int64_t steps) {
  ScheduleConfig config;
  config.lr = train.get_number("lr");
  config.warmup = train.get_int("warmup");
  config.steps = steps;
  config.kind = train.get_string("schedule");
  config.min_ratio = train.get_number("min_lr_ratio");
  config.cooldown = train.get_number("cooldown");
  const ConfigValue& warmup = train.at("warmup");
  LOOM_CHECK_USER(config.warmup <= steps, warmup.mark.str(), ": ", warmup.path, ": the warm-up of ", config.warmup,
                  " steps is longer than the run of ", steps, "; expected at most train.steps");
  return config;
}

}  // namespace loom
