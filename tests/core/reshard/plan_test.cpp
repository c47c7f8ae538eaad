// Plans against brute force over every element, and what a plan must not be: long where it can be short, slow where
// rows are permuted, silent where nobody owns an element.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/reshard/redistribute.h"
#include "tests/core/reshard/layouts.h"

namespace loom::test {
namespace {

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(Plan, RandomLayoutsAgreeWithBruteForce) {
  Dice dice(11);
  int64_t moved = 0, chosen = 0, dims_seen[5] = {0, 0, 0, 0, 0};
  for (int round = 0; round < 1500; ++round) {
    const int world = 1 + static_cast<int>(dice.below(5));
    std::vector<int64_t> shape;
    for (int64_t d = 1 + dice.below(3); d > 0; --d) shape.push_back(dice.chance(12) ? 0 : 1 + dice.below(7));
    const Layout source = random_layout(shape, world, dice.chance(2), dice);
    const Layout destination = random_layout(shape, world, dice.chance(2), dice);
    const auto expected = expected_moves(source, destination);
    const std::vector<Transfer> plan = plan_transfers(source, destination);
    ASSERT_EQ(planned_moves(plan), expected) << "round " << round;
    for (const auto& [from, to] : expected) ++(from.first == to.first ? chosen : moved);
    ++dims_seen[shape.size()];
  }
  EXPECT_GT(moved, 10000);
  EXPECT_GT(chosen, 10000);
  EXPECT_GT(std::min({dims_seen[1], dims_seen[2], dims_seen[3]}), 300);
}

TEST(Plan, RoutesOfAllRanksAreThePlan) {
  Dice dice(12);
  for (int round = 0; round < 200; ++round) {
    const int world = 2 + static_cast<int>(dice.below(3));
    const std::vector<int64_t> shape{1 + dice.below(9), 1 + dice.below(5)};
    const std::vector<Transfer> plan =
        plan_transfers(random_layout(shape, world, true, dice), random_layout(shape, world, true, dice));
    std::vector<Route> routes;
    for (int rank = 0; rank < world; ++rank) routes.push_back(route_of(plan, rank));
    size_t patches = 0;
    for (int rank = 0; rank < world; ++rank) {
      const Route& route = routes[static_cast<size_t>(rank)];
      patches += route.local.size();
      int before = -1;
      for (const PeerPatches& send : route.sends) {
        ASSERT_GT(send.peer, before);
        ASSERT_NE(send.peer, rank);
        before = send.peer;
        patches += send.patches.size();
        // The peer expects the same sizes in the same order.
        const std::vector<PeerPatches>& theirs = routes[static_cast<size_t>(send.peer)].receives;
        const auto match = std::find_if(theirs.begin(), theirs.end(), [&](const auto& r) { return r.peer == rank; });
        ASSERT_NE(match, theirs.end());
        ASSERT_EQ(match->patches.size(), send.patches.size());
        for (size_t i = 0; i < send.patches.size(); ++i) ASSERT_EQ(match->patches[i].size, send.patches[i].size);
      }
    }
    EXPECT_EQ(patches, plan.size());
  }
}

TEST(Plan, RowsThatContinueAreOneTransfer) {
  // Four runs on rank 0 and two on rank 1, as one run on rank 2.
  const Layout source = row_layout(12, {{0, 0, 0, 2}, {0, 2, 2, 1}, {0, 3, 3, 3}, {1, 6, 0, 2}, {1, 8, 2, 4}});
  const std::vector<Transfer> plan = plan_transfers(source, row_layout(12, {{2, 0, 5, 12}}));
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].from.size, std::vector<int64_t>{6});
  EXPECT_EQ(plan[0].to.offset, 5);
  EXPECT_EQ(plan[1].source, 1);
  EXPECT_EQ(plan[1].to.offset, 11);
  // The other way round: destination runs that continue.
  EXPECT_EQ(plan_transfers(row_layout(12, {{2, 0, 5, 12}}), source).size(), 2u);
  // Rows that lie elsewhere are not joined.
  EXPECT_EQ(plan_transfers(row_layout(2, {{0, 0, 1, 1}, {0, 1, 0, 1}}), row_layout(2, {{0, 0, 0, 2}})).size(), 2u);
}

TEST(Plan, HeadSplitsAreOneTransferPerPair) {
  // Rows over two ranks -> heads over three, and a source that comes in pieces.
  Layout rows{{8, 6}, {}}, heads{{8, 6}, {}};
  for (int r = 0; r < 2; ++r) {
    for (int64_t piece = 0; piece < 2; ++piece) {
      rows.boxes.push_back({r, {{r * 4 + piece * 2, 0}, {2, 6}}, piece * 12, {6, 1}});
    }
  }
  for (int r = 0; r < 3; ++r) heads.boxes.push_back({r, {{0, r * 2}, {8, 2}}, 0, {2, 1}});
  EXPECT_EQ(plan_transfers(rows, heads).size(), 6u);
  EXPECT_EQ(plan_transfers(heads, rows).size(), 6u);
}

TEST(Plan, ThePermutedItemIsNotQuadratic) {
  constexpr int64_t kRows = 60000;
  Dice dice(5);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < kRows; ++i) order.push_back(i);
  dice.shuffle(order);
  std::vector<RowRun> permuted, halves{{0, 0, 0, kRows / 2}, {1, kRows / 2, 0, kRows / 2}};
  for (int64_t i = 0; i < kRows; ++i)
    permuted.push_back({static_cast<int>(i % 2), order[static_cast<size_t>(i)], i / 2, 1});
  std::vector<RowRun> with_whole = permuted;
  with_whole.push_back({2, 0, 0, kRows});
  for (const auto& [from, to] : {std::pair(permuted, halves), std::pair(halves, permuted),
                                 std::pair(with_whole, permuted), std::pair(permuted, with_whole)}) {
    int64_t rows = 0;
    for (const Transfer& t : plan_transfers(row_layout(kRows, from), row_layout(kRows, to))) rows += t.from.numel();
    int64_t wanted = 0;
    for (const RowRun& run : to) wanted += run.rows;
    EXPECT_EQ(rows, wanted);
  }
}

TEST(Plan, AnElementWithoutOwnerIsNamed) {
  const Layout source = row_layout(10, {{0, 0, 0, 4}, {1, 6, 0, 4}});
  const std::string said = message_of([&] { plan_transfers(source, row_layout(10, {{1, 3, 0, 5}})); });
  EXPECT_NE(said.find("[4:6]"), std::string::npos) << said;
  EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
  EXPECT_NE(said.find("[3:8]"), std::string::npos) << said;
  EXPECT_NO_THROW(plan_transfers(source, row_layout(10, {{1, 0, 0, 4}, {1, 6, 4, 4}})));
}

TEST(Plan, RefusesBoxesThatDoNotFit) {
  const Layout fine = row_layout(4, {{0, 0, 0, 4}});
  EXPECT_NE(message_of([&] { plan_transfers(fine, row_layout(5, {{0, 0, 0, 4}})); }), "");
  EXPECT_NE(message_of([&] { plan_transfers(fine, row_layout(4, {{0, 2, 0, 3}})); }).find("beyond"), std::string::npos);
  EXPECT_NE(message_of([&] {
              plan_transfers(fine, {{4}, {{0, {{0}, {4}}, 0, {1, 1}}}});
            }).find("strides"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              plan_transfers(fine, {{4}, {{0, {{0}, {4}}, -1, {1}}}});
            }).find("offset"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              plan_transfers(fine, {{4}, {{0, {{0}, {4}}, 0, {0}}}});
            }).find("stride"),
            std::string::npos);
}

TEST(Plan, ScalarsAndNothing) {
  const Layout here{{}, {{0, {}, 3, {}}}}, there{{}, {{1, {}, 7, {}}}};
  const std::vector<Transfer> plan = plan_transfers(here, there);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].from.offset, 3);
  EXPECT_EQ(plan[0].to.offset, 7);
  EXPECT_EQ(plan[0].to.numel(), 1);
  EXPECT_TRUE(plan_transfers(row_layout(0, {}), row_layout(0, {})).empty());
  EXPECT_TRUE(plan_transfers(row_layout(3, {}), row_layout(3, {})).empty());
}

TEST(Plan, AppendedRoutesMove) {
  const std::vector<Transfer> one =
      plan_transfers(row_layout(2, {{0, 0, 0, 2}}), row_layout(2, {{1, 0, 0, 1}, {0, 1, 0, 1}}));
  const std::vector<Transfer> two =
      plan_transfers(row_layout(2, {{0, 0, 0, 2}}), row_layout(2, {{2, 0, 0, 1}, {1, 1, 0, 1}}));
  Route route = route_of(one, 0);
  append(route, route_of(two, 0), 10, 20);
  ASSERT_EQ(route.sends.size(), 2u);
  EXPECT_EQ(route.sends[0].peer, 1);
  ASSERT_EQ(route.sends[0].patches.size(), 2u);
  EXPECT_EQ(route.sends[0].patches[1].offset, 11);
  EXPECT_EQ(route.sends[1].peer, 2);
  EXPECT_EQ(route.sent(), 3);
  Route other = route_of(one, 1);
  append(other, route_of(two, 1), 10, 20);
  ASSERT_EQ(other.receives.size(), 1u);
  EXPECT_EQ(other.receives[0].patches[1].offset, 20);
  EXPECT_TRUE(other.remote());
}

}  // namespace
}  // namespace loom::test
