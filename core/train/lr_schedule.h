#pragma once
// The learning rate as a pure function of the step, so that a resumed run needs no state and a plan can be printed
// beforehand.
#include <cstdint>
#include <string>

#include "core/config/config_value.h"
#include "core/config/schema.h"

namespace loom {

struct ScheduleConfig {
  double lr = 0;                // the peak
  int64_t warmup = 0;           // steps of linear rise; step `warmup` is the first at the peak
  int64_t steps = 1;            // of the whole run
  std::string kind = "cosine";  // constant, linear, cosine, wsd
  double min_ratio = 0;         // what linear, cosine and wsd fall to, as a share of the peak
  double cooldown = 0.1;        // wsd: share of the run that falls at its end
};

// The rate of optimizer step `step`, counted from 1. Warm-up rises as step / warmup; the fall starts at the peak and
// reaches min_ratio one step after the last, so no step is spent at a rate of zero. Later steps than `steps` stay at
// the end's rate.
double learning_rate(const ScheduleConfig& config, int64_t step);

// Fields of the recipe's `train` section that belong here: lr, warmup, schedule, min_lr_ratio, cooldown.
void add_schedule_fields(Schema& train);
// From a validated `train` section. UserError when the warm-up is longer than the run.
ScheduleConfig read_schedule(const ConfigValue& train, int64_t steps);

}  // namespace loom
