// What `data check` counts, and the epoch it foretells against the loader itself.
#include "pipelines/data_stats.h"

#include <gtest/gtest.h>

#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::FakeKit;
using test::FakeSource;

TEST(DataStats, CountsEverySampleOnce) {
  FakeKit kit(64);
  FakeSource source("train.0", 20);
  source.broken = {3, 4, 11, 12, 19};
  SourceStats stats;
  for (int64_t i = 0; i < source.size(); ++i) stats.add(check_sample(kit.preparer, source, i));
  EXPECT_EQ(stats.samples(), 20);
  EXPECT_EQ(stats.usable(), 15);
  EXPECT_EQ(stats.skipped(), 5);
  EXPECT_EQ(stats.left_out(), 0);
  ASSERT_EQ(stats.groups().size(), 1u);
  EXPECT_EQ(stats.groups()[0].count, 5);
  EXPECT_EQ(stats.groups()[0].examples.size(), 3u);
  EXPECT_NE(stats.groups()[0].examples[0].find("train.0#3"), std::string::npos);
  EXPECT_EQ(stats.tokens_of(3), 0);
  EXPECT_EQ(stats.tokens_of(5), kit.preparer.prepare(source, 5).verdict.tokens);
  EXPECT_NE(stats.pictures_text().find("1x1 smallest"), std::string::npos) << stats.pictures_text();
  EXPECT_NE(stats.pictures_text().find("4x1 largest"), std::string::npos) << stats.pictures_text();
}

TEST(DataStats, WhatWouldStopARunIsCountedInstead) {
  FakeKit kit(12);  // long captions do not fit, and the recipe says error
  const FakeSource source("train.0", 22);
  SourceStats stats;
  for (int64_t i = 0; i < source.size(); ++i) stats.add(check_sample(kit.preparer, source, i));
  EXPECT_GT(stats.stopping(), 0);
  EXPECT_EQ(stats.stopping(), stats.skipped());
  EXPECT_TRUE(stats.groups()[0].stops);
  FakeKit drops(12, OverLong::drop);
  SourceStats left;
  for (int64_t i = 0; i < source.size(); ++i) left.add(check_sample(drops.preparer, source, i));
  EXPECT_EQ(left.stopping(), 0);
  EXPECT_EQ(left.left_out(), stats.stopping());
  EXPECT_EQ(left.usable(), stats.usable());
}

// Steps, samples, tokens and packs of the first epoch, as the loader makes them.
EpochPlan by_loader(const std::vector<std::shared_ptr<Source>>& sources, const Preparer& preparer,
                    const LoaderOptions& options, double& whole_steps) {
  ThreadPool pool(2);
  StepLoader loader(sources, preparer, pool, options);
  EpochPlan out;
  int64_t size = 0;
  for (const auto& source : sources) size += source->size();
  for (;;) {
    const LoadedStep step = loader.next();
    if (static_cast<int64_t>(step.after.position) > size) return out;
    out.samples += static_cast<int64_t>(step.plan.samples.size());
    out.tokens += step.plan.tokens;
    out.packs += static_cast<int64_t>(step.plan.microbatches.size());
    whole_steps += 1;
  }
}

TEST(PlanEpoch, IsTheLoadersFirstEpoch) {
  FakeKit kit(40);
  const auto a = std::make_shared<FakeSource>("train.0", 61), b = std::make_shared<FakeSource>("train.1", 35);
  a->broken = {3, 50};
  const std::vector<std::shared_ptr<Source>> sources{a, b};
  for (const BatchSize batch : {BatchSize{10, BatchSize::Unit::samples}, BatchSize{96, BatchSize::Unit::tokens}}) {
    LoaderOptions options;
    options.batch = batch;
    options.seed = 3;
    options.max_skip_rate = 1;
    double steps = 0;
    const EpochPlan loaded = by_loader(sources, kit.preparer, options, steps);
    std::vector<SourceStats> stats(2);
    for (size_t s = 0; s < 2; ++s) {
      for (int64_t i = 0; i < sources[s]->size(); ++i) stats[s].add(check_sample(kit.preparer, *sources[s], i));
    }
    const SampleOrder order({{"train.0", 61, 0}, {"train.1", 35, 0}}, 3, true);
    const EpochPlan plan = plan_epoch(order, batch, 40, [&](int source, int64_t index) {
      return stats[static_cast<size_t>(source)].tokens_of(index);
    });
    EXPECT_EQ(plan.samples, 94);
    // The loader's last step of the epoch may take samples of the next one; the plan counts its share.
    EXPECT_GE(plan.steps, steps);
    EXPECT_LE(plan.steps, steps + 1);
    EXPECT_GE(plan.packs, loaded.packs);
    EXPECT_LE(plan.packs - loaded.packs, 4);
    EXPECT_GE(plan.tokens, loaded.tokens);
    if (batch.unit == BatchSize::Unit::samples) {
      EXPECT_DOUBLE_EQ(plan.steps, 9.4);
    }
  }
}

}  // namespace
}  // namespace loom
