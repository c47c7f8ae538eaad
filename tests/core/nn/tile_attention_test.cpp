// Ring and mesh attention: tiles cover every pair of ranks once, values and gradients are those of one rank, bytes are
// those of the formulas, and zigzag pieces give every rank the same work.
#include <gtest/gtest.h>

#include "core/comm/dry.h"
#include "core/nn/attention_tiles.h"
#include "core/nn/tile_attention.h"
#include "core/nn/tile_times.h"
#include "core/parallel/memory_meter.h"
#include "tests/core/nn/split_items.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

// A segment of equal pieces, or of two per rank: the i-th from the front and the i-th from the back.
SplitSegment segment_on(int ranks, int64_t piece_rows, bool zigzag) {
  SplitSegment out;
  const int pieces = zigzag ? 2 * ranks : ranks;
  for (int i = 0; i < pieces; ++i) {
    const bool second = zigzag && i >= ranks;
    out.pieces.push_back({second ? pieces - 1 - i : i, i * piece_rows, piece_rows, second ? piece_rows : 0, 0});
  }
  out.rows = pieces * piece_rows;
  return out;
}

TEST(AttentionTiles, CoverEveryPairOfMembersOnce) {
  for (int n = 1; n <= 16; ++n) {
    for (int a = 1; a <= n; ++a) {
      if (n % a != 0) continue;
      const SplitSegment segment = segment_on(n, 3, false);
      std::vector<AttentionTile> tiles;
      for (int i = 0; i < n; ++i) tiles.push_back(plan_tile(segment, &segment, i, a));
      std::vector<std::vector<int>> seen(static_cast<size_t>(n), std::vector<int>(static_cast<size_t>(n)));
      for (const AttentionTile& tile : tiles) {
        EXPECT_EQ(tile.queries * tile.keys(), n);
        EXPECT_EQ(tile.queries_from(0), tile.me);
        EXPECT_EQ(tile.keys_from(0), tile.me);
        for (int q = 0; q < tile.queries; ++q) {
          EXPECT_EQ(tiles[static_cast<size_t>(tile.queries_from(q))].queries_to(q), tile.me);
          for (int k = 0; k < tile.keys(); ++k)
            ++seen[static_cast<size_t>(tile.queries_from(q))][static_cast<size_t>(tile.keys_from(k))];
        }
        for (int k = 0; k < tile.keys(); ++k)
          EXPECT_EQ(tiles[static_cast<size_t>(tile.keys_from(k))].keys_to(k), tile.me);
      }
      for (const auto& row : seen) EXPECT_EQ(row, std::vector<int>(static_cast<size_t>(n), 1)) << n << ", a " << a;
    }
  }
}

TEST(AttentionTiles, ShapeFollowsTrafficAndMembers) {
  EXPECT_EQ(least_traffic(16, 1), 4);
  EXPECT_EQ(least_traffic(256, 1), 16);
  EXPECT_EQ(least_traffic(2, 1), 2);  // 5 queries against 6 keys and values
  EXPECT_EQ(least_traffic(16, 0.125), 2);
  EXPECT_EQ(least_traffic(16, 0.03125), 1);
  const SplitSegment six = segment_on(6, 2, false);
  EXPECT_EQ(plan_tile(six, &six, 0, 4).queries, 2);
  EXPECT_EQ(plan_tile(six, &six, 7, 1).me, -1);
}

// A free link or free operations leave what the other one asks for.
TEST(AttentionTiles, ShapeFollowsMeasuredTimes) {
  TileWork work;
  work.members = 16;
  work.rows = 1 << 14;
  work.heads = work.kv_heads = 8;
  work.head_dim = 64;
  const TileTimes slow_link{0, 1e-6, 1e-15}, slow_cores{0, 1e-15, 1e-9}, costly_messages{1, 1e-15, 1e-15};
  EXPECT_EQ(least_time(work, slow_link), 4);        // as what sends least
  EXPECT_EQ(least_time(work, slow_cores), 1);       // all hides, and the smallest holds least
  EXPECT_EQ(least_time(work, costly_messages), 4);  // fewest messages
  work.kv_heads = 1;
  EXPECT_LT(least_time(work, slow_link), 4);
  // One link, nothing hidden: the bytes of the formulas and the operations of all cells.
  work = {};
  work.members = 4;
  work.rows = 400;
  work.causal = false;
  const double q = 100 * 4, operations = 3.5 * 4 * 100 * 100 * 4;
  EXPECT_DOUBLE_EQ(tile_seconds(work, 2, {0, 1, 0}), (2 + 2 + 3 + 4) * q);
  EXPECT_DOUBLE_EQ(tile_seconds(work, 1, {0, 1, 0}), (6 + 12) * q);
  EXPECT_DOUBLE_EQ(tile_seconds(work, 2, {0, 0, 1}), operations);
}

// Every rank gets the same numbers, so all choose the same shape.
TEST(AttentionTiles, MeasuredTimesAreTheSlowestRanks) {
  std::vector<TileTimes> times(3);
  run_loopback(3, [&](Communicator& comm) {
    times[static_cast<size_t>(comm.rank())] = measure_tiles(comm, at::kFloat, at::kCPU);
  });
  for (const TileTimes& one : times) {
    EXPECT_GT(one.message, 0);
    EXPECT_GT(one.operation, 0);
    EXPECT_EQ(one.message, times[0].message);
    EXPECT_EQ(one.byte, times[0].byte);
    EXPECT_EQ(one.operation, times[0].operation);
  }
}

TEST(AttentionTiles, ZigzagGivesEveryRankTheSameWork) {
  VarlenShape shape;
  shape.causal = true;
  for (const int n : {2, 4, 8}) {
    for (int a = 1; a <= n; a *= 2) {
      for (const bool zigzag : {false, true}) {
        const SplitSegment segment = segment_on(n, zigzag ? 32 : 64, zigzag);
        double most = 0, all = 0;
        for (int rank = 0; rank < n; ++rank) {
          const AttentionTile tile = plan_tile(segment, &segment, rank, a);
          double cells = 0;
          for (int q = 0; q < tile.queries; ++q) {
            for (int k = 0; k < tile.keys(); ++k) {
              for (const auto& run : tile.kv[static_cast<size_t>(tile.keys_from(k))].runs)
                cells += attention_cells(
                    visible_ranges(tile, tile.q[static_cast<size_t>(tile.queries_from(q))], run, 0, shape), true, 0);
            }
          }
          most = std::max(most, cells);
          all += cells;
        }
        EXPECT_EQ(all, static_cast<double>(segment.rows) * static_cast<double>(segment.rows + 1) / 2);
        const double ratio = most * n / all;
        std::printf("%d ranks, %d x %d, %s: most over mean of causal cells %.3f\n", n, a, n / a,
                    zigzag ? "zigzag" : "contiguous", ratio);
        if (zigzag) {
          EXPECT_LT(ratio, 1.005);
        } else {
          EXPECT_GT(ratio, 1.3);
        }
      }
    }
  }
}

// In random pieces, often several on one rank.
std::vector<StreamItem> scattered_items(const Philox& random, uint64_t& at, int world) {
  std::vector<StreamItem> items;
  for (uint64_t i = 0; i < 4; ++i) {
    StreamItem item;
    item.key = {i + 1, 0, 0};
    const auto rows = static_cast<int64_t>(1 + random.below(40, at++));
    item.layout = whole_item(rows);
    for (int64_t begin = 0; begin < rows;) {
      const auto n = static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(rows - begin), at++));
      item.pieces.push_back({static_cast<int>(random.below(static_cast<uint64_t>(world), at++)), begin, n});
      begin += n;
    }
    items.push_back(std::move(item));
  }
  return items;
}

void fill(Problem& p, at::ScalarType type) {
  const int64_t nq = rows_in(p.items), nk = rows_in(p.others);
  p.q = at::randn({nq, p.spec.heads * p.spec.head_dim}, type);
  p.k = at::randn({nk, p.spec.kv_heads * p.spec.head_dim}, type);
  p.v = at::randn_like(p.k);
  p.weights = at::randn_like(p.q);
}

TEST(TileAttention, EqualsOneRankInValuesAndGradients) {
  int64_t splits = 0;
  double worst[2] = {0, 0};
  uint64_t seed = 0;
  for (const int world : {2, 3, 4, 6, 8, 9}) {
    for (const int tile : {1, 2, 3, 4, kLeastTraffic}) {
      if (tile > 1 && world % tile != 0) continue;
      for (int kind = 0; kind < 5; ++kind) {  // full, causal, causal with a window, float, of another stream
        const Philox random({++seed, Purpose::sample});
        uint64_t at = 0;
        at::manual_seed(seed);
        static constexpr Heads kHeads[] = {{9, 3}, {3, 1}, {4, 4}, {6, 2}, {3, 3}};
        const Heads heads = kHeads[seed % 5];
        Problem p;
        p.items = scattered_items(random, at, world);
        p.others = kind == 4 ? scattered_items(random, at, world) : p.items;
        if (kind == 4) {
          // All ranks of a divided item know where both streams lie.
          for (size_t i = 0; i < p.items.size(); ++i) {
            for (auto [to, from] : {std::pair(&p.others[i], &p.items[i]), std::pair(&p.items[i], &p.others[i])}) {
              const size_t before = from->pieces.size();
              for (size_t piece = 0; piece < before; ++piece) to->pieces.push_back({from->pieces[piece].rank, 0, 0});
            }
          }
          p.spec.kv_partition = "other";
        }
        p.spec.heads = heads.q;
        p.spec.kv_heads = heads.kv;
        p.spec.head_dim = 4;
        p.spec.causal = kind == 1 || kind == 2 || (kind == 3 && seed % 2 == 0);
        if (kind == 2) p.spec.window = static_cast<int64_t>(1 + random.below(12, at++));
        p.tile_queries = tile;
        fill(p, kind == 3 ? at::kFloat : at::kDouble);
        const Compared answer = on_ranks(p, world);
        for (size_t i = 0; i < 4; ++i) {
          const double off = relative_difference(answer.got[i], answer.wanted[i]);
          EXPECT_LE(off, kind == 3 ? 1e-5 : 1e-12)
              << "world " << world << ", tile " << tile << ", kind " << kind << ", tensor " << i;
          worst[kind == 3] = std::max(worst[kind == 3], off);
        }
        splits += answer.splits;
      }
    }
  }
  std::printf("%llu cases, %lld split segments, worst %.1e in float64, %.1e in float32\n",
              static_cast<unsigned long long>(seed), static_cast<long long>(splits), worst[0], worst[1]);
  EXPECT_GT(splits, 500);
}

// A chunk is S / n rows. The log-sum-exp of a partial output is a number per row and head; a query of the backward
// takes two of them with it.
TEST(TileAttention, BytesAreThoseOfTheFormulas) {
  constexpr int64_t kRows = 6;  // of a chunk
  for (const Heads heads : {Heads{4, 4}, Heads{6, 2}}) {
    for (const int n : {2, 4, 6, 9}) {
      for (int a = 1; a <= n; ++a) {
        if (n % a != 0) continue;
        Problem p;
        StreamItem item;
        item.key = {1, 0, 0};
        item.layout = whole_item(n * kRows);
        for (int i = 0; i < n; ++i) item.pieces.push_back({i, i * kRows, kRows});
        p.items = p.others = {item};
        p.spec = {.heads = heads.q, .kv_heads = heads.kv, .head_dim = 8, .causal = true};
        p.tile_queries = a;
        fill(p, at::kDouble);
        const int64_t q = kRows * heads.q * 8, kv = kRows * heads.kv * 8, per_row = kRows * heads.q, b = n / a;
        const int64_t forward = (a - 1) * (2 * q + per_row) + (b - 1) * 2 * kv;
        const int64_t backward = (a - 1) * (3 * q + 2 * per_row) + (b - 1) * 4 * kv;
        EXPECT_EQ(on_ranks(p, n).sent, 8 * n * (forward + backward)) << n << " ranks, a " << a;
      }
    }
  }
}

// Of queries a rank holds its a chunks to the end, of keys and values never more than its own, those that it works on
// and those on their way: at most a + 2 b chunks. What it makes of them comes on top: a partial output for each of the
// a, and those that are being sent and merged.
TEST(TileAttention, HoldsAtMostItsChunks) {
  install_memory_meter();
  constexpr int64_t kRows = 256, kHeads = 4, kDim = 32, kBytes = kRows * kHeads * kDim * 4;
  for (const int n : {4, 9, 16}) {
    for (int a = 1; a <= n; ++a) {
      if (n % a != 0) continue;
      const int b = n / a;
      const SplitSegment segment = segment_on(n, kRows, false);
      const std::vector<AttentionTile> tiles{plan_tile(segment, &segment, 0, a)};
      DryCommunicator comm(0, n);
      VarlenShape shape;
      shape.heads = shape.kv_heads = kHeads;
      shape.head_dim = kDim;
      const Tensor q = at::zeros({kRows, kHeads * kDim}, at::device(at::kMeta)), k = at::zeros_like(q),
                   v = at::zeros_like(q);
      VarlenResult result{at::zeros_like(q), at::zeros({kRows, kHeads}, at::device(at::kMeta))};
      reset_memory_peak(at::kMeta);
      const int64_t before = memory_use(at::kMeta).live;
      tile_attention_forward(comm, "test", q, k, v, tiles, shape, result);
      const double peak = static_cast<double>(memory_use(at::kMeta).peak - before) / kBytes;
      std::printf("%2d ranks, %2d x %2d: %.2f chunks\n", n, a, b, peak);
      const double outputs = a + 4, scores = 0.1 * (a + 2);
      EXPECT_LE(peak, a + std::min(2 * b, 6) + outputs + scores) << n << " ranks, a " << a;
      EXPECT_GT(peak, a) << n << " ranks, a " << a;
    }
  }
}

}  // namespace
}  // namespace loom::test
