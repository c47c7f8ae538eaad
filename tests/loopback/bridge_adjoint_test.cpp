// The bridge between the layout of an encoder and that of a backbone: <R x, y> = <x, R' y> to round-off for a thousand
// random pairs of layouts, on the exact path and on the symmetric one, which agree to the bit; and the bytes that the
// communicator counted are those of their formulas.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>

#include "core/base/faults.h"
#include "core/comm/loopback.h"
#include "core/reshard/row_move.h"
#include "tests/core/reshard/layouts.h"

namespace loom::test {
namespace {

constexpr int kPairs = 1000;

// What one pair of layouts is, the same on every rank.
struct Pair {
  int64_t rows = 0, inner = 1;
  std::vector<RowRun> encoder, backbone;
  std::vector<Transfer> plan;
};

Pair random_pair(int world, Dice& dice) {
  Pair out;
  out.rows = dice.chance(20) ? 0 : 1 + dice.below(80);
  out.inner = 1 + dice.below(6);
  out.encoder = random_runs(out.rows, world, dice.chance(2), dice);
  out.backbone = random_runs(out.rows, world, dice.chance(4), dice);
  out.plan = plan_transfers(row_layout(out.rows, out.encoder), row_layout(out.rows, out.backbone));
  return out;
}

int64_t rows_on(const std::vector<RowRun>& runs, int rank) {
  int64_t n = 0;
  for (const RowRun& run : runs) n += run.rank == rank ? run.rows : 0;
  return n;
}

// Sum over rows of inner * element size * [source rank != destination rank], here of those that leave `rank`.
int64_t formula(const Pair& pair, int rank, int64_t element_size) {
  std::vector<int> from(static_cast<size_t>(pair.rows), -1);
  for (const RowRun& run : pair.encoder) {
    for (int64_t i = 0; i < run.rows; ++i) from[static_cast<size_t>(run.global + i)] = run.rank;
  }
  int64_t bytes = 0;
  for (const RowRun& run : pair.backbone) {
    for (int64_t i = 0; i < run.rows; ++i) {
      const int source = from[static_cast<size_t>(run.global + i)];
      if (source == rank && run.rank != rank) bytes += pair.inner * element_size;
    }
  }
  return bytes;
}

// Rows that a rank holds, as a function of the global row: what R should bring to their owners.
Tensor random_rows(int64_t rows, int64_t inner, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({rows, inner}, generator, at::TensorOptions(at::kDouble));
}

// What the symmetric path does with a pair: the result, its adjoint, and the bytes of both ways.
struct Symmetric {
  Tensor forward, back;
  int64_t bytes = 0, formula = 0;
};
Symmetric run_symmetric(Communicator& comm, const Pair& pair, const Tensor& x, const Tensor& y) {
  Symmetric out;
  const RowTraffic traffic = row_traffic(pair.plan, pair.backbone, comm.world());
  const RowMove move = symmetric_move(pair.plan, traffic, y.size(0), comm.world(), comm.rank());
  comm.reset_counts();
  out.forward = MovingRows(comm, "bridge", move, x).take();
  out.back = MovingRows::back(comm, "bridge, back", move, y, x.size(0)).take();
  out.bytes = comm.bytes_sent();
  int64_t part = 0;  // most rows of one rank
  for (int rank = 0; rank < comm.world(); ++rank) part = std::max(part, rows_on(pair.backbone, rank));
  out.formula = 2 * (traffic.group - 1) * part * pair.inner * 8;
  return out;
}

struct Totals {
  int64_t symmetric_bytes = 0;
  int64_t pairs = 0, empty_ranks = 0, permuted = 0, bytes = 0, forward_bytes = 0, expected_bytes = 0, wrong = 0;
  double worst = 0;
};

// Runs all pairs of a world; per pair the inner products are summed over ranks.
void run_pairs(int world, int pairs, uint64_t seed, Totals& totals) {
  std::mutex mutex;
  std::vector<double> left(static_cast<size_t>(pairs), 0), right = left, size = left;
  run_loopback(world, [&](Communicator& comm) {
    Dice dice(seed);
    const int rank = comm.rank();
    for (int i = 0; i < pairs; ++i) {
      const Pair pair = random_pair(world, dice);
      const Route route = route_of(pair.plan, rank);
      const uint64_t key = seed * 1000003 + static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(rank) * 2;
      const Tensor x = random_rows(rows_on(pair.encoder, rank), pair.inner, key);
      const Tensor y = random_rows(rows_on(pair.backbone, rank), pair.inner, key + 1);
      const Tensor Rx = at::zeros_like(y), Ry = at::zeros_like(x);
      comm.reset_counts();
      redistribute(comm, "bridge", {{&route, x, Rx, pair.inner}});
      const int64_t forward = comm.bytes_sent();
      redistribute_adjoint(comm, "bridge, back", {{&route, Ry, y, pair.inner}});
      const int64_t expected = formula(pair, rank, 8);
      EXPECT_EQ(forward, expected) << "pair " << i << ", rank " << rank;

      const int64_t both_ways = comm.bytes_sent();
      const Symmetric symmetric = run_symmetric(comm, pair, x, y);
      EXPECT_EQ(symmetric.bytes, symmetric.formula) << "pair " << i << ", rank " << rank;
      EXPECT_TRUE(at::equal(symmetric.forward, Rx)) << "pair " << i << ", rank " << rank;
      if (!fault(Fault::bridge_keeps_local)) {
        EXPECT_TRUE(at::equal(symmetric.back, Ry)) << "pair " << i << ", rank " << rank;
      }

      const std::lock_guard lock(mutex);
      totals.symmetric_bytes += symmetric.bytes;
      const auto at = static_cast<size_t>(i);
      left[at] += (Rx * y).sum().item<double>();
      right[at] += (x * Ry).sum().item<double>();
      size[at] += (Rx * y).abs().sum().item<double>();
      totals.forward_bytes += forward;
      totals.bytes += both_ways;
      totals.expected_bytes += 2 * expected;  // every row comes back once
      totals.empty_ranks += x.size(0) == 0 || y.size(0) == 0;
      if (rank == 0) totals.permuted += pair.encoder.size() == static_cast<size_t>(pair.rows) && pair.rows > 1;
    }
  });
  for (size_t i = 0; i < left.size(); ++i) {
    const double off = std::abs(left[i] - right[i]) / std::max(size[i], 1e-30);
    if (size[i] > 0) totals.worst = std::max(totals.worst, off);
    totals.wrong += size[i] > 0 && off > 1e-14;
  }
  totals.pairs += pairs;
}

TEST(BridgeAdjoint, InnerProductsAndBytes) {
  Totals totals;
  run_pairs(2, 334, 21, totals);
  run_pairs(3, 333, 22, totals);
  run_pairs(4, 333, 23, totals);
  std::printf(
      "bridge: %lld layout pairs (%lld permuted), %lld empty ranks; |<Rx,y> - <x,R'y>| <= %.1e of the sum of "
      "magnitudes; bytes forward %lld, back %lld, formula %lld each way; symmetric %lld, both ways\n",
      static_cast<long long>(totals.pairs), static_cast<long long>(totals.permuted),
      static_cast<long long>(totals.empty_ranks), totals.worst, static_cast<long long>(totals.forward_bytes),
      static_cast<long long>(totals.bytes - totals.forward_bytes), static_cast<long long>(totals.expected_bytes / 2),
      static_cast<long long>(totals.symmetric_bytes));
  EXPECT_EQ(totals.pairs, kPairs);
  EXPECT_EQ(totals.wrong, 0);
  EXPECT_EQ(totals.bytes, totals.expected_bytes);
  EXPECT_GT(totals.forward_bytes, 100000);
  EXPECT_GT(totals.empty_ranks, 200);
  EXPECT_GT(totals.permuted, 200);
}

TEST(BridgeAdjoint, DroppedGradientsOfOtherRanksShow) {
  Totals totals;
  set_fault(Fault::bridge_keeps_local);
  run_pairs(3, 50, 24, totals);
  set_fault(Fault::none);
  EXPECT_GT(totals.wrong, 30);
  EXPECT_EQ(totals.bytes, totals.expected_bytes);  // nothing hangs, everything is sent
}

}  // namespace
}  // namespace loom::test
