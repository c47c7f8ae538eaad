// What a plan gives each rank, added up by hand.
#include "core/step/imbalance.h"

#include <gtest/gtest.h>

namespace loom::test {
namespace {

// Two samples on two ranks, in the first two of three microbatches; the last one is empty.
StepPlan two_samples() {
  StepPlan plan;
  plan.layout.world = 2;
  plan.samples.resize(2);
  for (Verdict& verdict : plan.samples) {
    verdict.tokens = 10;
    verdict.items.resize(1);
    verdict.items[0].modality = "image";
    verdict.items[0].meta = {8, 8, 100, {}};
    verdict.items[0].slots = 4;
  }
  plan.samples[1].items[0].meta.cost = 0;  // by rows
  plan.microbatches.resize(3);
  plan.microbatches[0].samples = {{0, {{0, 0, 7}, {1, 7, 3}}}};
  plan.microbatches[0].items["image"] = {{0, 0, {{0, 0, 2}, {1, 2, 6}}}};
  plan.microbatches[1].samples = {{1, {{1, 0, 10}}}};
  plan.microbatches[1].items["image"] = {{1, 0, {{1, 0, 8}}}};
  return plan;
}

void expect_load(const RankLoad& load, int64_t items, int64_t tokens, double cost) {
  EXPECT_EQ(load.items, items);
  EXPECT_EQ(load.tokens, tokens);
  EXPECT_DOUBLE_EQ(load.cost, cost);
}

TEST(Imbalance, IsTheHighestLoadOfEveryMicrobatchOverTheMean) {
  const std::map<std::string, double> got = imbalance_of(two_samples());
  EXPECT_EQ(got.size(), 2u);
  EXPECT_DOUBLE_EQ(got.at("backbone"), (7.0 + 10) / (5 + 5));
  EXPECT_DOUBLE_EQ(got.at("encoders.image"), (75.0 + 8) / (50 + 4));
  EXPECT_TRUE(imbalance_of(StepPlan{}).empty());
}

TEST(RankLoads, OfAStepAreThoseOfItsMicrobatches) {
  const StepPlan plan = two_samples();
  const auto loads = rank_loads(plan);
  ASSERT_EQ(loads.size(), 3u);
  expect_load(loads.at("backbone")[0], 1, 7, 7);
  expect_load(loads.at("backbone")[1], 1, 13, 13);
  expect_load(loads.at("encoders.image")[0], 1, 2, 25);
  expect_load(loads.at("encoders.image")[1], 1, 14, 83);
  expect_load(loads.at("connectors.image")[0], 1, 1, 1);
  expect_load(loads.at("connectors.image")[1], 1, 7, 7);
  const auto second = rank_loads(plan, plan.microbatches[1]);
  expect_load(second.at("backbone")[0], 0, 0, 0);
  expect_load(second.at("encoders.image")[1], 1, 8, 8);
  EXPECT_EQ(rank_loads(plan, plan.microbatches[2]).size(), 1u) << "nobody has items";
  EXPECT_TRUE(rank_loads(StepPlan{}).empty());
}

// One slot of a pooled item, 3 slots of 7 rows: every slot counts once wherever the item is cut.
TEST(RankLoads, SlotsOfADividedItemAreAllCounted) {
  StepPlan plan;
  plan.layout.world = 3;
  plan.samples.resize(1);
  plan.microbatches.resize(1);
  for (const int64_t slots : {1, 3, 7, 14}) {
    ItemPlace place;
    place.modality = "image";
    place.meta = {7, 7, 7, {}};
    place.slots = slots;
    plan.samples[0].items = {place};
    plan.microbatches[0].items["image"] = {{0, 0, {{2, 0, 0}, {1, 0, 3}, {0, 3, 2}, {1, 5, 2}}}};
    int64_t sum = 0, items = 0;
    const auto loads = rank_loads(plan);
    for (const RankLoad& load : loads.at("connectors.image")) {
      sum += load.tokens;
      items += load.items;
    }
    EXPECT_EQ(sum, slots);
    EXPECT_EQ(items, 1);
    EXPECT_EQ(loads.at("encoders.image")[1].items, 1) << "where its first rows lie";
  }
}

}  // namespace
}  // namespace loom::test
