// Waits of made-up tables, with known answers.
#include "core/train/rank_waits.h"

#include <gtest/gtest.h>

namespace loom::test {
namespace {

using Seconds = std::vector<double>;

RankTable::Phase phase(StepAction action, const std::string& component, Seconds compute, Seconds inside,
                       Seconds after = {}) {
  after.resize(compute.size());
  return {action, component, std::move(compute), std::move(inside), std::move(after)};
}

RankTable table_of(std::vector<RankTable::Phase> phases) {
  RankTable out;
  out.phases = std::move(phases);
  out.seconds.assign(out.phases.front().compute.size(), 2.0);
  out.compute = out.seconds;
  return out;
}

WorldLayout layout_of(int world) {
  WorldLayout out;
  out.world = world;
  return out;
}

TEST(RankWaits, TheRankThatCameLastAndWhatKeptIt) {
  // Rank 3 encodes for 0.8 s more than the others; all meet in the encoder's weights, and again in the backbone's.
  const RankTable table =
      table_of({phase(StepAction::forward, "encoders.image", {0.1, 0.1, 0.1, 0.9}, {0.85, 0.85, 0.85, 0.05}),
                phase(StepAction::forward, "backbone", {0.5, 0.5, 0.5, 0.5}, {0.1, 0.1, 0.1, 0.1})});
  const RankWaits waits = waits_of(table, layout_of(4));
  ASSERT_EQ(waits.waits.size(), 3u);
  for (const RankWait& wait : waits.waits) {
    EXPECT_NE(wait.rank, 3);
    EXPECT_EQ(wait.behind, 3);
    EXPECT_EQ(wait.part, "encoders.image");
    EXPECT_NEAR(wait.seconds, 0.8, 1e-12);
  }
  EXPECT_NEAR(waits.within.at("encoders.image")[0], 0.8, 1e-12);
  EXPECT_EQ(waits.within.at("encoders.image")[3], 0);
  EXPECT_EQ(waits.within.count("backbone"), 0u);
  EXPECT_NEAR(waits.by_part.at("encoders.image")[2], 0.8, 1e-12);
  EXPECT_NEAR(waits.by_rank[1], 0.8, 1e-12);
  EXPECT_NEAR(waits.share, (3 * 0.8 / 2) / 4, 1e-12);
}

TEST(RankWaits, WhatKeptItMayLieBeforeWhereTheOthersWait) {
  // Copies of the encoder on every rank: nobody meets until the bridge. Then a late backbone shows in the next phase.
  WorldLayout layout = layout_of(2);
  layout.encoders["image"].shard = 1;
  const RankTable table = table_of({phase(StepAction::forward, "encoders.image", {0.1, 0.7}, {0, 0}),
                                    phase(StepAction::forward, "connectors.image", {0.1, 0.1}, {0, 0}, {0.6, 0}),
                                    phase(StepAction::forward, "backbone", {0.2, 0.2}, {0.01, 0.01}),
                                    phase(StepAction::backward, "backbone", {0.6, 0.2}, {0.01, 0.01}),
                                    phase(StepAction::backward, "connectors.image", {0.1, 0.1}, {0, 0.4})});
  const RankWaits waits = waits_of(table, layout);
  ASSERT_EQ(waits.waits.size(), 2u);
  EXPECT_EQ(waits.waits[0].rank, 0);
  EXPECT_EQ(waits.waits[0].behind, 1);
  EXPECT_EQ(waits.waits[0].part, "encoders.image");
  EXPECT_NEAR(waits.waits[0].seconds, 0.6, 1e-12);
  EXPECT_EQ(waits.waits[1].rank, 1);
  EXPECT_EQ(waits.waits[1].behind, 0);
  EXPECT_EQ(waits.waits[1].part, "backbone");
  EXPECT_NEAR(waits.within.at("connectors.image")[0], 0.6, 1e-12) << "spent there, for another";
}

TEST(RankWaits, MicrobatchesDoNotCancelOut) {
  std::vector<RankTable::Phase> phases;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const bool first = microbatch == 0;
    phases.push_back(phase(StepAction::batch, "", {0, 0}, {0, 0}));
    phases.push_back(phase(StepAction::forward, "encoders.image", {first ? 0.5 : 0.1, first ? 0.1 : 0.5},
                           {first ? 0.0 : 0.4, first ? 0.4 : 0.0}));
  }
  const RankTable table = table_of(phases);
  const RankWaits waits = waits_of(table, layout_of(2));
  ASSERT_EQ(waits.waits.size(), 2u);
  EXPECT_NEAR(waits.waits[0].seconds, 0.4, 1e-12);
  EXPECT_NEAR(waits.share, 0.4 / 2, 1e-12);
  EXPECT_NEAR(measured_imbalance(table).at("encoders.image"), 1.0 / 0.6, 1e-12);
  EXPECT_NEAR(table.compute_by_component().at("encoders.image")[0], 0.6, 1e-12);
  EXPECT_NEAR(table.communication_by_component().at("encoders.image")[0], 0.4, 1e-12);
}

TEST(RankWaits, AWaitThatComputingDoesNotExplainIsNobodysComponent) {
  const RankTable table = table_of({phase(StepAction::data, "", {0.1, 0}, {0, 0.3}),
                                    phase(StepAction::forward, "backbone", {0.2, 0.21}, {0.5, 0}),
                                    phase(StepAction::norm, "", {0, 0}, {0, 0.1})});
  const RankWaits waits = waits_of(table, layout_of(2));
  ASSERT_EQ(waits.waits.size(), 3u);
  EXPECT_EQ(waits.waits[0].part, kOtherPart);
  EXPECT_EQ(waits.waits[1].part, "data") << "rank 0 waited for its samples";
  EXPECT_EQ(waits.waits[2].part, kOtherPart);
  const RankTable late = table_of({phase(StepAction::data, "", {0, 0}, {0, 0.3})});
  EXPECT_EQ(waits_of(late, layout_of(2)).waits.at(0).part, kBetweenPart);
}

TEST(RankWaits, RanksThatDoNotMeetDoNotWaitForEachOther) {
  // Two copies of the encoder's weights, on ranks 0, 1 and 2, 3.
  WorldLayout layout = layout_of(4);
  layout.encoders["image"].shard = 2;
  const RankTable table =
      table_of({phase(StepAction::forward, "encoders.image", {0.1, 0.3, 0.5, 0.1}, {0.2, 0, 0, 0.4})});
  const RankWaits waits = waits_of(table, layout);
  ASSERT_EQ(waits.waits.size(), 2u);
  EXPECT_EQ(waits.waits[0].rank, 3);
  EXPECT_EQ(waits.waits[0].behind, 2);
  EXPECT_EQ(waits.waits[1].rank, 0);
  EXPECT_EQ(waits.waits[1].behind, 1);
}

TEST(RankWaits, WhoMeetsInAComponent) {
  WorldLayout layout = layout_of(8);
  EXPECT_EQ(meeting_block(layout, "backbone"), 8);
  EXPECT_EQ(meeting_block(layout, ""), 8);
  layout.backbone = {2, 1, kByHeads, 2};
  EXPECT_EQ(meeting_block(layout, "backbone"), 4);
  layout.encoders["image"] = {4, 1};
  layout.balance.group = 4;
  EXPECT_EQ(meeting_block(layout, "encoders.image"), 4) << "pieces of one item lie anywhere in a balance group";
  layout.encoders["image"].sp = 1;
  EXPECT_EQ(meeting_block(layout, "encoders.image"), 1);
  layout.connectors["image"] = {1, 2, kByHeads, 2};
  EXPECT_EQ(meeting_block(layout, "connectors.image"), 4);
  EXPECT_EQ(meeting_block(layout, "encoders.sound"), 8);
}

}  // namespace
}  // namespace loom::test
