// The executor on real ranks: values, what stays untouched, bytes, sums of the adjoint, and dtypes.
#include "core/reshard/redistribute.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/core/reshard/layouts.h"

namespace loom::test {
namespace {

// A number that says what an element is: exact in bf16 for small ones.
double value_at(int64_t element, int64_t column) { return static_cast<double>((element * 7 + column * 3) % 128); }

struct Case {
  Layout source, destination;
  int64_t inner = 1;
  std::vector<std::pair<Place, Place>> expected;
  std::vector<int64_t> source_size, destination_size;
  Route route;
};

Case make_case(int world, int rank, Dice& dice) {
  Case out;
  if (dice.chance(2)) {
    const int64_t rows = dice.below(60);
    out.source = row_layout(rows, random_runs(rows, world, dice.chance(2), dice));
    out.destination = row_layout(rows, random_runs(rows, world, dice.chance(2), dice));
  } else {
    std::vector<int64_t> shape;
    for (int64_t d = 1 + dice.below(3); d > 0; --d) shape.push_back(1 + dice.below(7));
    out.source = random_layout(shape, world, dice.chance(2), dice);
    out.destination = random_layout(shape, world, dice.chance(2), dice);
  }
  out.inner = 1 + dice.below(3);
  out.expected = expected_moves(out.source, out.destination);
  out.source_size = memory_sizes(out.source, world);
  out.destination_size = memory_sizes(out.destination, world);
  out.route = route_of(plan_transfers(out.source, out.destination), rank);
  return out;
}

double at_place(const Tensor& memory, int64_t element, int64_t column, int64_t inner) {
  return memory.view({-1})[element * inner + column].item<double>();
}

class OnWorlds : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {};

TEST_P(OnWorlds, ForwardAndAdjoint) {
  const auto [world, type] = GetParam();
  std::mutex mutex;
  int64_t sent_in_all = 0, expected_in_all = 0;
  run_loopback(world, [&, world = world, type = type](Communicator& comm) {
    const int rank = comm.rank();
    const auto me = static_cast<size_t>(rank);
    Dice dice(77);  // the same cases on every rank
    int64_t expected_bytes = 0;
    const auto element_size = static_cast<int64_t>(c10::elementSize(type));
    for (int round = 0; round < 60; ++round) {
      // One to three moves at once.
      std::vector<Case> cases;
      for (int64_t n = 1 + dice.below(3); n > 0; --n) cases.push_back(make_case(world, rank, dice));
      std::vector<Move> moves;
      for (const Case& c : cases) {
        Tensor source = at::empty({c.source_size[me], c.inner}, at::kDouble);
        for (int64_t e = 0; e < source.size(0); ++e) {
          for (int64_t i = 0; i < c.inner; ++i) source[e][i] = value_at(e + 1000 * rank, i);
        }
        moves.push_back({&c.route, source.to(type), at::full({c.destination_size[me], c.inner}, -1, type), c.inner});
      }
      redistribute(comm, "test", moves);
      for (size_t m = 0; m < cases.size(); ++m) {
        const Case& c = cases[m];
        int64_t named = 0;
        for (const auto& [from, to] : c.expected) {
          if (from.first != to.first) expected_bytes += (from.first == rank) * c.inner * element_size;
          if (to.first != rank) continue;
          ++named;
          for (int64_t i = 0; i < c.inner; ++i) {
            ASSERT_EQ(at_place(moves[m].destination, to.second, i, c.inner),
                      value_at(from.second + 1000 * from.first, i));
          }
        }
        const int64_t untouched = (moves[m].destination == -1).sum().item<int64_t>();
        ASSERT_EQ(untouched, (c.destination_size[me] - named) * c.inner);
      }

      for (size_t m = 0; m < cases.size(); ++m) {
        moves[m].source.fill_(1);
        for (int64_t e = 0; e < moves[m].destination.size(0); ++e) moves[m].destination[e].fill_(1 + (e + rank) % 4);
      }
      redistribute_adjoint(comm, "test", moves);
      for (size_t m = 0; m < cases.size(); ++m) {
        const Case& c = cases[m];
        std::vector<double> sum(static_cast<size_t>(c.source_size[me]), 1);
        for (const auto& [from, to] : c.expected) {
          if (from.first != to.first) expected_bytes += (to.first == rank) * c.inner * element_size;
          if (from.first == rank)
            sum[static_cast<size_t>(from.second)] += static_cast<double>(1 + (to.second + to.first) % 4);
        }
        for (size_t e = 0; e < sum.size(); ++e) {
          for (int64_t i = 0; i < c.inner; ++i) {
            ASSERT_EQ(at_place(moves[m].source, static_cast<int64_t>(e), i, c.inner), sum[e]);
          }
        }
      }
    }
    const std::lock_guard lock(mutex);
    sent_in_all += comm.bytes_sent();
    expected_in_all += expected_bytes;
    EXPECT_EQ(comm.bytes_sent(), expected_bytes);
  });
  EXPECT_EQ(sent_in_all, expected_in_all);
  if (world > 1) {
    EXPECT_GT(sent_in_all, 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, OnWorlds,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16)));

TEST(Redistribute, AloneNeedsNoPeer) {
  Dice dice(3);
  const Case c = make_case(1, 0, dice);
  const Layout rows = row_layout(5, {{0, 0, 0, 5}}), turned = row_layout(5, {{0, 3, 0, 2}, {0, 0, 2, 3}});
  const Route route = route_of(plan_transfers(rows, turned), 0);
  EXPECT_FALSE(route.remote());
  const Tensor x = at::arange(10, at::kFloat).view({5, 2}), y = at::zeros({5, 2});
  redistribute(alone(), "test", {{&route, x, y, 2}});
  EXPECT_TRUE(y.equal(at::cat({x.slice(0, 3), x.slice(0, 0, 3)})));
  const Tensor back = at::zeros({5, 2});
  redistribute_adjoint(alone(), "test", {{&route, back, y, 2}});
  EXPECT_TRUE(back.equal(x));
}

TEST(Redistribute, SumsDoNotDependOnArrival) {
  // One row that all four ranks read: 1e8 and -1e8 come from ranks 0 and 3, so the order of adding shows in float.
  constexpr int kWorld = 4;
  const Layout source = row_layout(1, {{2, 0, 0, 1}});
  std::vector<RowRun> everywhere;
  for (int r = 0; r < kWorld; ++r) everywhere.push_back({r, 0, 0, 1});
  const std::vector<Transfer> plan = plan_transfers(source, row_layout(1, everywhere));
  const std::vector<float> parts{1e8f, 3.3f, 0.7f, -1e8f};
  float expected = 0.25f;
  for (const float part : parts) expected += part;
  for (uint64_t delays = 1; delays <= 5; ++delays) {
    run_loopback(kWorld, {.delays = delays}, [&](Communicator& comm) {
      const Route route = route_of(plan, comm.rank());
      const Tensor sum = at::full({comm.rank() == 2 ? 1 : 0, 1}, 0.25f),
                   mine = at::full({1, 1}, parts[static_cast<size_t>(comm.rank())]);
      redistribute_adjoint(comm, "test", {{&route, sum, mine, 1}});
      if (comm.rank() == 2) {
        EXPECT_EQ(sum.item<float>(), expected);
      }
    });
  }
}

TEST(Redistribute, ViewsOfLargerMemories) {
  // Memories that begin in the middle of a storage, strided patches, zero rows on one rank.
  run_loopback(2, [](Communicator& comm) {
    const Layout columns{{4, 4}, {{0, {{0, 0}, {4, 2}}, 0, {2, 1}}, {0, {{0, 2}, {4, 2}}, 8, {2, 1}}}};
    const Layout rows{{4, 4}, {{0, {{0, 0}, {4, 4}}, 0, {4, 1}}}};
    const Layout other{{4, 4}, {{1, {{0, 0}, {4, 4}}, 0, {4, 1}}}};
    const Tensor all = at::arange(100, at::kDouble);
    const Route here = route_of(plan_transfers(columns, rows), comm.rank()),
                away = route_of(plan_transfers(columns, other), comm.rank());
    const Tensor mine = comm.rank() == 0 ? all.slice(0, 10, 26) : all.slice(0, 0, 0);
    const Tensor base = at::zeros({40}, at::kDouble);
    const Tensor target = base.slice(0, 5, comm.rank() == 0 ? 21 : 5),
                 elsewhere = base.slice(0, 22, comm.rank() == 1 ? 38 : 22);
    redistribute(comm, "test", {{&here, mine, target, 1}, {&away, mine, elsewhere, 1}});
    const Tensor expected =
        at::cat({all.slice(0, 10, 18).view({4, 2}), all.slice(0, 18, 26).view({4, 2})}, 1).view({16});
    EXPECT_TRUE((comm.rank() == 0 ? target : elsewhere).equal(expected));
    EXPECT_EQ(base.sum().item<double>(), expected.sum().item<double>());
  });
}

TEST(Redistribute, RefusesWhatDoesNotFit) {
  const Layout rows = row_layout(4, {{0, 0, 0, 4}});
  const Route route = route_of(plan_transfers(rows, rows), 0);
  const Tensor four = at::zeros({4, 2}), three = at::zeros({3, 2}), wide = at::zeros({4, 4});
  EXPECT_THROW(redistribute(alone(), "test", {{&route, four, three, 2}}), InternalError);
  EXPECT_THROW(redistribute(alone(), "test", {{&route, three, four, 2}}), InternalError);
  EXPECT_THROW(redistribute(alone(), "test", {{&route, four, four.to(at::kDouble), 2}}), InternalError);
  EXPECT_THROW(redistribute(alone(), "test", {{&route, four, wide.slice(1, 0, 2), 2}}), InternalError);
  EXPECT_THROW(redistribute(alone(), "test", {{&route, four, Tensor(), 2}}), InternalError);
  EXPECT_THROW(redistribute(alone(), "test", {{nullptr, four, four, 2}}), InternalError);
}

}  // namespace
}  // namespace loom::test
