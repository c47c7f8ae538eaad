// Pieces put together again are the whole, and what ranks know of each other's pieces is true: random items, layouts
// and pieces, against the same items on one rank.
#include "core/step/placement.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "core/base/error.h"
#include "tests/core/step/random_steps.h"

namespace loom {
namespace {

using test::Draws;

std::vector<StreamItem> random_items(int world, Draws& draws) {
  std::vector<StreamItem> out;
  for (int64_t n = draws.between(0, 6); n > 0; --n) {
    StreamItem item;
    item.key = {static_cast<uint64_t>(draws.below(1000)), static_cast<uint64_t>(n), 0};
    const int64_t rows = draws.between(1, 24);
    item.layout = test::random_layout(rows, draws);
    item.pieces = test::random_pieces(rows, legal_cuts(item.layout), world, draws);
    out.push_back(std::move(item));
  }
  return out;
}

std::vector<StreamItem> on_one_rank(std::vector<StreamItem> items) {
  for (StreamItem& item : items) item.pieces = {{0, 0, item.layout.partitions.at("").rows()}};
  return items;
}

// Everything that a row of a stream is: segment, owner, place within the item, positions.
using RowLabel = std::tuple<int64_t, uint64_t, uint64_t, int64_t, std::vector<int64_t>>;
std::vector<RowLabel> labels_of(const Segments& segments) {
  std::vector<RowLabel> out;
  for (int64_t s = 0; s < segments.count(); ++s) {
    const SegmentKey& key = segments.keys[static_cast<size_t>(s)];
    for (int64_t row = segments.offsets[static_cast<size_t>(s)]; row < segments.offsets[static_cast<size_t>(s) + 1];
         ++row) {
      const auto at = segments.positions.begin() + row * segments.position_axes;
      out.emplace_back(segments.ids[static_cast<size_t>(s)], key.sample, key.occurrence,
                       key.first_row + row - segments.offsets[static_cast<size_t>(s)],
                       std::vector<int64_t>(at, at + segments.position_axes));
    }
  }
  return out;
}

std::vector<Partitions> on_all_ranks(const std::vector<StreamItem>& items, int world) {
  std::vector<Partitions> out;
  for (int rank = 0; rank < world; ++rank) out.push_back(local_partitions(items, rank));
  return out;
}

bool is_divided(const StreamItem& item) {
  std::set<int> ranks;
  for (const Piece& piece : item.pieces) ranks.insert(piece.rank);
  return ranks.size() > 1;
}

TEST(Placement, PiecesPutTogetherAreTheWhole) {
  int64_t divided_rows = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Draws draws(seed);
    const int world = static_cast<int>(draws.between(1, 5));
    const std::vector<StreamItem> items = random_items(world, draws);
    const Partitions whole = local_partitions(on_one_rank(items), 0);
    const std::vector<Partitions> parts = on_all_ranks(items, world);
    for (const auto& [name, segments] : whole) {
      const std::vector<RowLabel> expected = labels_of(segments);
      std::vector<std::vector<RowLabel>> local;
      for (const Partitions& part : parts) local.push_back(labels_of(part.at(name)));
      std::vector<int64_t> filled(static_cast<size_t>(world), 0);
      int64_t next = 0;
      for (const PlacedRows& run : placed_rows(items, name)) {
        EXPECT_EQ(run.global, next) << "seed " << seed << " partition " << name;
        EXPECT_EQ(run.local, filled[static_cast<size_t>(run.rank)]) << "seed " << seed;
        for (int64_t i = 0; i < run.rows; ++i) {
          ASSERT_LT(static_cast<size_t>(run.local + i), local[static_cast<size_t>(run.rank)].size());
          EXPECT_EQ(local[static_cast<size_t>(run.rank)][static_cast<size_t>(run.local + i)],
                    expected[static_cast<size_t>(run.global + i)])
              << "seed " << seed << " partition " << name << " row " << run.global + i;
        }
        next += run.rows;
        filled[static_cast<size_t>(run.rank)] += run.rows;
        divided_rows += run.rank > 0 ? run.rows : 0;
      }
      EXPECT_EQ(next, segments.rows());
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        EXPECT_EQ(filled[rank], parts[rank].at(name).rows());
        EXPECT_EQ(parts[rank].at(name).position_axes, segments.position_axes);
        EXPECT_TRUE(std::is_sorted(parts[rank].at(name).ids.begin(), parts[rank].at(name).ids.end()));
      }
    }
    for (const Partitions& part : parts) EXPECT_EQ(part.size(), whole.size()) << "a partition is missing on a rank";
  }
  EXPECT_GT(divided_rows, 5000);
}

TEST(Placement, SplitsAreWhatTheRanksHold) {
  int64_t splits = 0, of_nothing = 0, shared = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Draws draws(seed);
    const int world = static_cast<int>(draws.between(2, 5));
    const std::vector<StreamItem> items = random_items(world, draws);
    const std::vector<Partitions> parts = on_all_ranks(items, world);
    for (const auto& [name, ignored] : parts[0]) {
      // By rank: the segments of divided items that it holds a piece of.
      std::vector<std::map<int64_t, int64_t>> expected(static_cast<size_t>(world));  // id -> rows
      std::map<int64_t, std::pair<int64_t, SegmentKey>> begins;                      // id -> first row in the item
      int64_t id = 0;
      for (const StreamItem& item : items) {
        const auto part = item.layout.partitions.find(name);
        if (part == item.layout.partitions.end()) continue;
        int64_t begin = 0;
        for (const int64_t length : part->second.lengths) {
          begins[id] = {begin, item.key};
          for (const Piece& piece : item.pieces) {
            if (is_divided(item)) expected[static_cast<size_t>(piece.rank)][id] = length;
          }
          begin += length;
          ++id;
        }
      }
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<SplitSegment>& got = parts[static_cast<size_t>(rank)].at(name).splits;
        std::map<int64_t, int64_t> found;
        int64_t last = -1;
        for (const SplitSegment& split : got) {
          EXPECT_GT(split.id, last) << "not ascending, seed " << seed;
          last = split.id;
          found[split.id] = split.rows;
          ++splits;
          int64_t next = 0;
          bool here = false;
          for (const SegmentPiece& piece : split.pieces) {
            EXPECT_EQ(piece.begin, next) << "seed " << seed;
            EXPECT_GT(piece.rows, 0);
            next += piece.rows;
            here = here || piece.rank == rank;
            const Segments& there = parts[static_cast<size_t>(piece.rank)].at(name);
            ASSERT_TRUE(piece.local >= 0 && piece.local < there.count()) << "seed " << seed;
            const size_t local = static_cast<size_t>(piece.local);
            EXPECT_EQ(there.ids[local], split.id);
            EXPECT_EQ(there.offsets[local], piece.local_row);
            EXPECT_EQ(there.length(piece.local), piece.rows);
            EXPECT_EQ(there.keys[local].first_row, begins.at(split.id).first + piece.begin);
            EXPECT_EQ(there.keys[local].sample, begins.at(split.id).second.sample);
          }
          EXPECT_EQ(next, split.rows) << "pieces do not cover segment " << split.id << ", seed " << seed;
          of_nothing += !here;
          shared += split.pieces.size() > 1;
        }
        EXPECT_EQ(found, expected[static_cast<size_t>(rank)]) << "seed " << seed << " rank " << rank;
      }
    }
  }
  EXPECT_GT(splits, 1000);
  EXPECT_GT(of_nothing, 300);
  EXPECT_GT(shared, 300);
}

TEST(Placement, APieceContinuesItsSegment) {
  StreamItem item{{9, 2, 0}, whole_item(10), {{1, 0, 4}, {0, 4, 6}}};
  item.layout.partitions[""].lengths = {3, 7};
  const Partitions local = local_partitions({item}, 0);
  const Segments& segments = local.at("");
  EXPECT_EQ(segments.offsets, (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(segments.ids, (std::vector<int64_t>{1}));
  EXPECT_EQ(segments.keys[0].first_row, 4);
  EXPECT_EQ(segments.positions, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(segments.splits.size(), 2u);
  EXPECT_EQ(segments.splits[0].pieces.size(), 1u);  // whole on rank 1
  ASSERT_EQ(segments.splits[1].pieces.size(), 2u);
  EXPECT_EQ(segments.splits[1].pieces[0].local_row, 3);
  EXPECT_EQ(segments.splits[1].pieces[0].local, 1);
}

TEST(Placement, PiecesThatFollowEachOtherOnOneRankAreOneSegment) {
  const StreamItem item{{9, 1, 0}, whole_item(10), {{0, 0, 2}, {0, 2, 3}, {1, 5, 2}, {0, 7, 3}}};
  const Partitions local = local_partitions({item}, 0);
  EXPECT_EQ(local.at("").offsets, (std::vector<int64_t>{0, 5, 8}));
  EXPECT_EQ(local.at("").positions, (std::vector<int64_t>{0, 1, 2, 3, 4, 7, 8, 9}));
  EXPECT_EQ(local.at("").ids, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(local.at("").splits.at(0).pieces.size(), 3u);
}

TEST(Placement, AnEmptyPieceIsHeld) {
  const StreamItem item{{9, 1, 0}, whole_item(4), {{2, 0, 0}, {1, 0, 4}}};
  for (const int rank : {1, 2}) {
    const Partitions local = local_partitions({item}, rank);
    ASSERT_EQ(local.at("").splits.size(), 1u) << rank;
    EXPECT_EQ(local.at("").splits[0].pieces.size(), 1u);
    EXPECT_EQ(local.at("").rows(), rank == 1 ? 4 : 0);
  }
  EXPECT_TRUE(local_partitions({item}, 0).at("").splits.empty());
  EXPECT_EQ(pieces_on({item}, 2).size(), 1u);
}

TEST(Placement, ManyItems) {
  Draws draws(4);
  std::vector<StreamItem> items;
  for (uint64_t i = 0; i < 20000; ++i) {
    StreamItem item{{i, 1, 0}, whole_item(16), {{static_cast<int>(draws.below(4)), 0, 16}}};
    if (i % 100 == 0) item.pieces = {{0, 0, 4}, {1, 4, 4}, {2, 8, 4}, {3, 12, 4}};
    items.push_back(std::move(item));
  }
  int64_t rows = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Partitions local = local_partitions(items, rank);
    rows += local.at("").rows();
    EXPECT_EQ(local.at("").splits.size(), 200u);
  }
  EXPECT_EQ(rows, 16 * 20000);
}

TEST(Placement, ACutWithoutARowIsOurBug) {
  StreamItem item{{9, 1, 0}, whole_item(8), {{0, 0, 3}, {1, 3, 5}}};
  item.layout.partitions["half"].lengths = {4};
  EXPECT_THROW(local_partitions({item}, 0), InternalError);
}

}  // namespace
}  // namespace loom
