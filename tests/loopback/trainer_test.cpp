// Invariants 6 and 7 on several ranks, through the trainer: the norm counts every element once under any mix of shards
// and copies, of tied and frozen parameters; a step without supervised tokens changes no bit.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/loopback/trainer_case.h"

namespace loom::test {
namespace {

TEST(LoopbackTrainer, ReportsWhatOneRankReports) {
  int64_t cases = 0;
  double worst = 0;
  for (const ModelSpec& spec : zoo_models()) {
    const RunData data = random_data(spec, {}, {.seed = 21});
    const std::vector<StepStats> reference = train_alone(spec, data);
    ASSERT_GT(reference.front().grad_norm, 0);
    for (const int world : {2, 4}) {
      for (const int shard : {1, 2, 0}) {
        LayoutChoice layout{.world = world, .encoder_shard = shard, .connector_shard = shard == 1 ? 0 : 1};
        layout.backbone_shard = shard == 0 ? 2 : 0;
        layout.encoder_sp = layout.backbone_sp = 2;
        layout.placing = static_cast<Placing>(1 + cases % 4);
        layout.microbatches = 1 + cases % 3;
        const std::vector<StepPlan> plans = random_plans(spec, {}, layout, data);
        const auto ranks = train_plans(spec, data, plans);
        const Difference difference = compare(reference, ranks.front());
        EXPECT_LE(difference.worst, 1e-10)
            << spec.name << " world " << world << " shard " << shard << ": " << difference.where;
        worst = std::max(worst, difference.worst);
        for (const auto& rank : ranks) EXPECT_EQ(compare(ranks.front(), rank).worst, 0) << spec.name;
        EXPECT_GT(ranks.front().front().bytes_sent, 0);
        ++cases;
      }
    }
  }
  std::cout << "  " << cases << " cases, worst difference " << worst << "\n";
}

TEST(LoopbackTrainer, NothingSupervisedChangesNothing) {
  for (const char* name : {"captioner", "statistics", "frozen_prefix"}) {
    const ModelSpec& spec = zoo_model(name);
    RunData data = random_data(spec, {}, {.seed = 22});
    const RunData silent = random_data(spec, {}, {.seed = 22, .supervised = false});
    data.insert(data.begin() + 1, silent.front());
    const LayoutChoice layout{.world = 4, .backbone_sp = 2, .placing = Placing::random, .microbatches = 3};
    const std::vector<StepPlan> plans = random_plans(spec, {}, layout, data);
    ASSERT_EQ(plans[1].supervised, 0);
    for (const auto& rank : train_plans(spec, data, plans)) {
      EXPECT_TRUE(rank[0].updated);
      EXPECT_FALSE(rank[1].updated);
      EXPECT_EQ(rank[1].step, 2);
      EXPECT_EQ(rank[1].supervised, 0);
      EXPECT_TRUE(rank[2].updated);
    }
    EXPECT_LE(compare(train_alone(spec, data), train_plans(spec, data, plans).back()).worst, 1e-10) << name;
  }
}

}  // namespace
}  // namespace loom::test
