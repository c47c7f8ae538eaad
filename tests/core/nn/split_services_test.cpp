// Services over segments that lie on several ranks, against the same segments on one: values and gradients of attention
// (self and across streams, uneven heads), halos and segment sums, and the bytes that attention sends.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/comm/loopback.h"
#include "core/nn/split_attention.h"
#include "tests/core/nn/split_items.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

TEST(SplitAttention, SharesCoverAllHeadsOnceAndKeepGroupsWhole) {
  for (const Heads h : {Heads{9, 3}, Heads{28, 4}, Heads{3, 1}, Heads{3, 3}, Heads{8, 8}, Heads{12, 2}}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const std::vector<HeadShare> shares = share_heads(h.q, h.kv, ranks);
      int64_t next = 0, most = 0;
      for (const HeadShare& s : shares) {
        EXPECT_EQ(s.q_begin, next);
        next = s.q_end;
        const int64_t group = h.q / h.kv;
        most = std::max(most, s.q_end - s.q_begin);
        if (s.q_end == s.q_begin) continue;
        EXPECT_EQ(s.kv_begin, s.q_begin / group);
        EXPECT_EQ(s.kv_end, (s.q_end - 1) / group + 1);
        EXPECT_EQ((s.q_end - s.q_begin) % (s.kv_end - s.kv_begin), 0);
      }
      EXPECT_EQ(next, h.q);
      if (h.kv >= ranks) {
        EXPECT_LE(most, (h.kv + ranks - 1) / ranks * (h.q / h.kv));
      }
    }
  }
}

// Elements that Ulysses moves for one segment and one direction of q (or output), and of k, v together.
int64_t expected_bytes(const Problem& p, int64_t element) {
  int64_t elements = 0;
  for (size_t i = 0; i < p.items.size(); ++i) {
    std::vector<int> ranks;
    for (const Piece& piece : p.items[i].pieces) ranks.push_back(piece.rank);
    const bool same = p.items[i].pieces.size() == 1 && p.others[i].pieces.size() == 1 &&
                      p.items[i].pieces[0].rank == p.others[i].pieces[0].rank;
    if (same) continue;
    const std::vector<HeadShare> shares = share_heads(p.spec.heads, p.spec.kv_heads, static_cast<int>(ranks.size()));
    for (size_t owner = 0; owner < ranks.size(); ++owner) {
      const HeadShare& s = shares[owner];
      if (s.q_end == s.q_begin) continue;
      for (const Piece& piece : p.items[i].pieces)
        elements += piece.rank == ranks[owner] ? 0 : 2 * piece.rows * (s.q_end - s.q_begin) * p.spec.head_dim;
      for (const Piece& piece : p.others[i].pieces)
        elements += piece.rank == ranks[owner] ? 0 : 2 * piece.rows * (s.kv_end - s.kv_begin) * p.spec.head_dim;
    }
  }
  return 2 * elements * element;  // forward and backward
}

TEST(SplitAttention, EqualsOneRankInValuesGradientsAndBytes) {
  int64_t split = 0, bytes_seen = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Philox random({seed, Purpose::sample});
    uint64_t at = 0;
    at::manual_seed(seed);
    const int world = 2 + static_cast<int>(seed % 3);
    const bool cross = seed % 4 == 0;
    static constexpr Heads kHeads[] = {{9, 3}, {3, 1}, {4, 4}, {6, 2}, {3, 3}};
    const Heads heads = kHeads[seed % 5];
    Problem p;
    p.items = random_items(random, at, world, 1);
    p.others = cross ? random_items(random, at, world, 1) : p.items;
    if (cross) {
      // Keys of a whole segment lie with it, those of a divided one wherever.
      for (size_t i = 0; i < p.items.size(); ++i) {
        const int64_t rows = p.others[i].layout.partitions.at("").rows();
        p.others[i].pieces = {{p.items[i].pieces.back().rank, 0, rows}};
      }
    }
    p.spec = {.heads = heads.q, .kv_heads = heads.kv, .head_dim = 4, .causal = !cross && seed % 2 == 0};
    if (cross) p.spec.kv_partition = "other";
    const int64_t nq = rows_in(p.items), nk = rows_in(p.others);
    p.q = at::randn({nq, heads.q * 4}, at::kDouble);
    p.k = at::randn({nk, heads.kv * 4}, at::kDouble);
    p.v = at::randn({nk, heads.kv * 4}, at::kDouble);
    p.weights = at::randn_like(p.q);
    if (cross) {
      // Key rows of a divided item must be known to all its ranks: as the planner of batches does it, pieces of the
      // keys on every rank of the item, most of them without rows.
      for (size_t i = 0; i < p.items.size(); ++i) {
        std::vector<Piece> pieces;
        for (const Piece& piece : p.items[i].pieces) pieces.push_back({piece.rank, 0, 0});
        pieces.back().rows = p.others[i].pieces[0].rows;
        p.others[i].pieces = pieces;
      }
    }
    const Compared answer = on_ranks(p, world);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_LE(relative_difference(answer.got[i], answer.wanted[i]), 1e-13) << "seed " << seed << " tensor " << i;
    std::vector<StreamItem> kept = p.others;
    for (StreamItem& item : kept)
      item.pieces.erase(
          std::remove_if(item.pieces.begin(), item.pieces.end(), [](const Piece& x) { return x.rows == 0; }),
          item.pieces.end());
    Problem counted = p;
    counted.others = kept;
    EXPECT_EQ(answer.sent, expected_bytes(counted, 8)) << "seed " << seed;
    bytes_seen += answer.sent;
    split += answer.splits;
  }
  EXPECT_GT(split, 20);
  EXPECT_GT(bytes_seen, 0);
}

TEST(SplitServices, HalosAndSumsEqualOneRank) {
  int64_t halo_rows = 0, sums = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Philox random({seed, Purpose::sample});
    uint64_t at = 0;
    at::manual_seed(seed);
    const int world = 2 + static_cast<int>(seed % 3);
    std::vector<StreamItem> items = random_items(random, at, world, 1);
    int64_t rows = 0;
    for (const StreamItem& item : items) rows += item.layout.partitions.at("").rows();
    const int64_t before = static_cast<int64_t>(random.below(4, at++)),
                  after = static_cast<int64_t>(random.below(4, at++));
    const Tensor x = at::randn({rows, 3}, at::kDouble), weights = at::randn({before + 1 + after, 3}, at::kDouble);
    // Not linear, so that gradients depend on values.
    const auto compute = [&](const std::vector<StreamItem>& placed, Communicator& comm, ServiceCounters* counters) {
      Ranked ranked(placed, placed, comm);
      UnitContext ctx = ranked.context();
      const Tensor mine = rows_here(x, placed, comm.rank());
      const Tensor windows = (ctx.halo(mine, before, after) * weights).sum(1);
      const Segments& s = ctx.segments();
      const Tensor mean = ctx.segment_mean(windows * windows), sum = ctx.segment_sum(mine);
      std::vector<Tensor> spread{mean.narrow(0, 0, 0)};
      for (int64_t i = 0; i < s.count(); ++i)
        spread.push_back((mean[i] * sum[i]).unsqueeze(0).expand({s.length(i), 3}));
      const Tensor out = windows * at::cat(spread).sin();
      out.pow(2).sum().backward();
      if (counters != nullptr) *counters = ranked.counters;
      return std::pair(out.detach(), mine.grad());
    };
    const auto [whole, gradient] = compute(on_one_rank(items), alone(), nullptr);
    Tensor got = at::full_like(whole, 7.0), got_gradient = at::full_like(whole, 7.0);
    std::vector<ServiceCounters> counters(static_cast<size_t>(world));
    run_loopback(world, [&](Communicator& comm) {
      const auto [out, grad] = compute(items, comm, &counters[static_cast<size_t>(comm.rank())]);
      put_rows(got, out, items, comm.rank());
      if (grad.defined()) put_rows(got_gradient, grad, items, comm.rank());
    });
    EXPECT_LE(relative_difference(got, whole), 1e-13) << seed;
    EXPECT_LE(relative_difference(got_gradient, gradient), 1e-12) << seed;
    for (const ServiceCounters& c : counters) {
      halo_rows += c.halo_rows;
      sums += c.split_sums;
    }
  }
  EXPECT_GT(halo_rows, 20);
  EXPECT_GT(sums, 20);
}

TEST(SplitServices, AStridedHaloPicksRowsOfTheSegment) {
  BoundLayer layer;
  layer.partitions()[""] = segments_of({5, 4});
  UnitContext ctx = layer.context();
  const Tensor x = at::arange(1, 10, at::kDouble).view({9, 1});
  const Tensor out = ctx.halo(x, 1, 1, 2).squeeze(2);
  const Tensor expected =
      at::tensor({0., 1., 2., 2., 3., 4., 4., 5., 0., 0., 6., 7., 7., 8., 9.}, at::kDouble).view({5, 3});
  EXPECT_TRUE(at::equal(out, expected));
}

}  // namespace
}  // namespace loom::test
