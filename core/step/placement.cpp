// One pass over all items per partition, which counts rows and segments of every rank on the way; so where a peer keeps
// a piece costs nothing extra to know.
#include "core/step/placement.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {
namespace {

// Rows [begin, end) of a partition, on a rank.
struct Range {
  int rank = 0;
  int64_t begin = 0, end = 0;
};

int64_t row_of_piece(const StreamItem& item, std::string_view partition, int64_t cut) {
  const int64_t row = row_at(item.layout, partition, cut);
  LOOM_CHECK(row >= 0, "partition '", partition, "' of item ", item.key.occurrence, " of sample ", item.key.sample,
             " has no row at cut ", cut);
  return row;
}

bool divided(const StreamItem& item) {
  LOOM_CHECK(!item.pieces.empty(), "item ", item.key.occurrence, " of sample ", item.key.sample, " lies nowhere");
  return std::any_of(item.pieces.begin(), item.pieces.end(),
                     [&](const Piece& piece) { return piece.rank != item.pieces.front().rank; });
}

bool holds(const StreamItem& item, int rank) {
  return std::any_of(item.pieces.begin(), item.pieces.end(), [&](const Piece& piece) { return piece.rank == rank; });
}

// Without empty ones; those that follow each other on one rank joined.
std::vector<Range> ranges_of(const StreamItem& item, std::string_view partition) {
  std::vector<Range> out;
  for (const Piece& piece : item.pieces) {
    if (piece.rows == 0) continue;
    const int64_t end = row_of_piece(item, partition, piece.begin + piece.rows);
    if (!out.empty() && out.back().rank == piece.rank) {
      out.back().end = end;
    } else {
      out.push_back({piece.rank, row_of_piece(item, partition, piece.begin), end});
    }
  }
  return out;
}

class PartitionBuilder {
 public:
  PartitionBuilder(std::string_view name, int rank) : name_(name), rank_(rank) {}

  void add(const StreamItem& item) {
    const auto found = item.layout.partitions.find(name_);
    if (found == item.layout.partitions.end()) return;
    const ItemPartition& part = found->second;
    if (first_) out_.position_axes = part.position_axes;
    first_ = false;
    LOOM_CHECK(out_.position_axes == part.position_axes, "partition '", name_, "' has ", out_.position_axes, " and ",
               part.position_axes, " position axes");
    if (divided(item)) {
      add_divided(item, part);
    } else {
      add_whole(item, part);
    }
  }
  Segments take() { return std::move(out_); }

 private:
  struct Count {
    int64_t rows = 0, segments = 0;
  };

  Count& count(int rank) {
    if (rank >= static_cast<int>(counts_.size())) counts_.resize(static_cast<size_t>(rank) + 1);
    return counts_[static_cast<size_t>(rank)];
  }

  void add_whole(const StreamItem& item, const ItemPartition& part) {
    const int rank = item.pieces.front().rank;
    if (rank == rank_) {
      int64_t row = 0, id = next_id_;
      for (const int64_t length : part.lengths) {
        append(item, part, row, row, row + length, 0, id++);
        row += length;
      }
    }
    count(rank).rows += part.rows();
    count(rank).segments += static_cast<int64_t>(part.lengths.size());
    next_id_ += static_cast<int64_t>(part.lengths.size());
  }

  void add_divided(const StreamItem& item, const ItemPartition& part) {
    const std::vector<Range> ranges = ranges_of(item, name_);
    const bool here = holds(item, rank_);
    size_t first = 0;  // range that may hold rows of the segment
    int64_t begin = 0;
    for (const int64_t length : part.lengths) {
      const int64_t end = begin + length;
      SplitSegment split{next_id_++, length, {}};
      while (first < ranges.size() && ranges[first].end <= begin) ++first;
      for (size_t k = first; k < ranges.size() && ranges[k].begin < end; ++k) {
        const Range& range = ranges[k];
        const int64_t from = std::max(begin, range.begin), to = std::min(end, range.end);
        if (from >= to) continue;
        Count& there = count(range.rank);
        split.pieces.push_back({range.rank, from - begin, to - from, there.rows, there.segments});
        if (range.rank == rank_) append(item, part, begin, from, to, range.begin, split.id);
        there.rows += to - from;
        ++there.segments;
      }
      if (here) out_.splits.push_back(std::move(split));
      begin = end;
    }
  }

  // Rows [from, to) of the item, of the segment that begins at `begin`, in a range that begins at `range`.
  void append(const StreamItem& item, const ItemPartition& part, int64_t begin, int64_t from, int64_t to, int64_t range,
              int64_t id) {
    SegmentKey key = item.key;
    key.first_row = fault(Fault::local_random_rows) ? from - range : from;
    const int64_t start = fault(Fault::local_positions) ? begin : from;
    const int64_t axes = part.position_axes;
    std::vector<int64_t> positions;
    if (!part.positions.empty()) {
      const auto at = part.positions.begin() + static_cast<std::ptrdiff_t>(start * axes);
      positions.assign(at, at + static_cast<std::ptrdiff_t>((to - from) * axes));
    } else if (start > begin) {
      positions.assign(static_cast<size_t>((to - from) * axes), 0);
      for (int64_t i = 0; i < to - from; ++i) positions[static_cast<size_t>((i + 1) * axes - 1)] = start - begin + i;
    }
    out_.append(to - from, key, positions, id);
  }

  std::string_view name_;
  int rank_;
  bool first_ = true;
  int64_t next_id_ = 0;
  std::vector<Count> counts_;  // of every rank so far
  Segments out_;
};

}  // namespace

Partitions local_partitions(const std::vector<StreamItem>& items, int rank) {
  std::set<std::string_view> names;
  for (const StreamItem& item : items) {
    for (const auto& [name, part] : item.layout.partitions) names.insert(name);
  }
  Partitions out;
  for (const std::string_view name : names) {
    PartitionBuilder builder(name, rank);
    for (const StreamItem& item : items) builder.add(item);
    out.emplace(name, builder.take());
  }
  return out;
}

std::vector<std::vector<int64_t>> local_rows(const std::vector<StreamItem>& items, std::string_view partition) {
  std::vector<std::vector<int64_t>> out(items.size());
  std::vector<int64_t> filled;
  for (size_t i = 0; i < items.size(); ++i) {
    const StreamItem& item = items[i];
    if (item.layout.partitions.find(partition) == item.layout.partitions.end()) continue;
    for (const Piece& piece : item.pieces) {
      if (piece.rank >= static_cast<int>(filled.size())) filled.resize(static_cast<size_t>(piece.rank) + 1);
      int64_t& next = filled[static_cast<size_t>(piece.rank)];
      out[i].push_back(next);
      if (piece.rows == 0) continue;
      next += row_of_piece(item, partition, piece.begin + piece.rows) - row_of_piece(item, partition, piece.begin);
    }
  }
  return out;
}

std::vector<PlacedRows> placed_rows(const std::vector<StreamItem>& items, std::string_view partition) {
  const std::vector<std::vector<int64_t>> local = local_rows(items, partition);
  std::vector<PlacedRows> out;
  int64_t global = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t p = 0; p < local[i].size(); ++p) {
      const Piece& piece = items[i].pieces[p];
      if (piece.rows == 0) continue;
      const int64_t begin = row_of_piece(items[i], partition, piece.begin);
      const int64_t rows = row_of_piece(items[i], partition, piece.begin + piece.rows) - begin;
      if (rows > 0) out.push_back({piece.rank, global + begin, local[i][p], rows});
    }
    const auto found = items[i].layout.partitions.find(partition);
    if (found != items[i].layout.partitions.end()) global += found->second.rows();
  }
  return out;
}

std::vector<LocalPiece> pieces_on(const std::vector<StreamItem>& items, int rank) {
  const std::vector<std::vector<int64_t>> local = local_rows(items);
  std::vector<LocalPiece> out;
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t p = 0; p < items[i].pieces.size(); ++p) {
      if (items[i].pieces[p].rank == rank) out.push_back({i, items[i].pieces[p], local[i][p]});
    }
  }
  return out;
}

}  // namespace loom
