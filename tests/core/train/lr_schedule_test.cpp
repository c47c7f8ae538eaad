// Edges of the learning-rate shapes: first and last step, the end of the warm-up, steps beyond the run.
#include "core/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace loom {
namespace {

ScheduleConfig config(const std::string& kind, double min_ratio = 0) {
  ScheduleConfig c;
  c.lr = 2e-3;
  c.warmup = 10;
  c.steps = 110;
  c.kind = kind;
  c.min_ratio = min_ratio;
  return c;
}

TEST(LrSchedule, WarmupRisesFromOneStepToThePeak) {
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 1), 2e-4) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 5), 1e-3) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 10), 2e-3) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 11), 2e-3) << kind;
  }
}

TEST(LrSchedule, WithoutWarmupTheFirstStepIsAtThePeak) {
  ScheduleConfig c = config("cosine");
  c.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(c, 1), 2e-3);
}

TEST(LrSchedule, CosineIsHalfWayInTheMiddleAndNeverZeroWithinTheRun) {
  EXPECT_NEAR(learning_rate(config("cosine"), 61), 1e-3, 1e-15);
  EXPECT_NEAR(learning_rate(config("cosine"), 36), 1e-3 * (1 + std::cos(std::numbers::pi / 4)), 1e-15);
  EXPECT_GT(learning_rate(config("cosine"), 110), 0);
  EXPECT_NEAR(learning_rate(config("cosine"), 111), 0, 1e-18);
  EXPECT_NEAR(learning_rate(config("cosine", 0.1), 111), 2e-4, 1e-18);
  EXPECT_NEAR(learning_rate(config("cosine", 0.1), 5000), 2e-4, 1e-18);
}

TEST(LrSchedule, LinearAndConstant) {
  EXPECT_DOUBLE_EQ(learning_rate(config("linear"), 36), 1.5e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config("linear", 0.5), 111), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config("constant", 0.5), 111), 2e-3);
}

TEST(LrSchedule, WsdHoldsThePeakUntilTheCooldown) {
  ScheduleConfig c = config("wsd");
  c.warmup = 0;
  c.steps = 100;
  c.cooldown = 0.2;
  EXPECT_DOUBLE_EQ(learning_rate(c, 81), 2e-3);
  EXPECT_LT(learning_rate(c, 82), 2e-3);
  EXPECT_NEAR(learning_rate(c, 91), 1e-3, 1e-15);
  EXPECT_NEAR(learning_rate(c, 101), 0, 1e-15);
  c.cooldown = 0;
  EXPECT_DOUBLE_EQ(learning_rate(c, 100), 2e-3);
}

TEST(LrSchedule, NeverRisesAfterTheWarmup) {
  for (const char* kind : {"linear", "cosine", "wsd"}) {
    for (int64_t step = 11; step < 130; ++step) {
      EXPECT_LE(learning_rate(config(kind, 0.05), step + 1), learning_rate(config(kind, 0.05), step))
          << kind << " step " << step;
    }
  }
}

TEST(LrSchedule, StepsCountFromOne) { EXPECT_THROW(learning_rate(config("cosine"), 0), InternalError); }

ConfigValue train_section(const std::vector<ConfigValue::Entry>& entries) {
  Schema schema;
  add_schedule_fields(schema);
  Mistakes mistakes;
  ConfigValue value = validate(ConfigValue::map(entries), schema, mistakes);
  mistakes.throw_if_any("recipe.yaml");
  return value;
}

TEST(LrSchedule, ReadsTheRecipe) {
  const ScheduleConfig c =
      read_schedule(train_section({{"lr", ConfigValue::number(3e-4)}, {"warmup", ConfigValue::integer(7)}}), 50);
  EXPECT_EQ(c.lr, 3e-4);
  EXPECT_EQ(c.warmup, 7);
  EXPECT_EQ(c.steps, 50);
  EXPECT_EQ(c.kind, "cosine");
  EXPECT_EQ(c.min_ratio, 0);
}

TEST(LrSchedule, RefusesAMissingRateAndALongWarmup) {
  EXPECT_THROW(train_section({}), UserError);
  EXPECT_THROW(train_section({{"lr", ConfigValue::number(1)}, {"schedule", ConfigValue::string("cosin")}}), UserError);
  EXPECT_THROW(read_schedule(train_section({{"lr", ConfigValue::number(1)}, {"warmup", ConfigValue::integer(51)}}), 50),
               UserError);
}

}  // namespace
}  // namespace loom
