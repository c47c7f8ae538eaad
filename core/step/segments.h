#pragma once
// A stream is a tensor [rows, width] plus Segments: which runs of rows attend to each other, whose they are, and where
// each row stands in its sample. Pure functions of metadata; known before any pixel is read.
//
// Splitting is a property of a segment (design, idea 3): a rank's tensor holds whole segments and pieces of split ones
// side by side. A piece is an ordinary local segment whose key and positions say where it starts; `splits` says who has
// the other pieces.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace loom {

// Whose rows a segment holds; what randomness is a function of.
struct SegmentKey {
  uint64_t sample = 0;      // key of the sample
  uint64_t occurrence = 0;  // which item of the sample (0 for text)
  int64_t first_row = 0;    // index of the segment's first row (of the piece's, when split) within its item
};

// Rows [begin, begin + rows) of a segment, on a rank.
struct SegmentPiece {
  int rank = 0;
  int64_t begin = 0, rows = 0;
  int64_t local_row = 0;  // first row in that rank's tensor
  int64_t local = -1;     // index of the local segment on that rank
};

// A segment of an item that is divided over ranks. Pieces in the order of their rows; a segment that lies on one rank
// although its item is divided has one piece. Segments without rows have none.
struct SplitSegment {
  int64_t id = 0;    // see Segments::ids
  int64_t rows = 0;  // of the whole segment
  std::vector<SegmentPiece> pieces;
};

struct Segments {
  std::vector<int64_t> offsets{0};  // cu_seqlens: segment s is rows [offsets[s], offsets[s+1])
  std::vector<SegmentKey> keys;     // one per segment
  std::vector<int64_t> ids;         // one per segment: its number among the segments of all ranks, ascending
  std::vector<int64_t> positions;   // rows x position_axes, row-major; within the item, not within the pack
  int64_t position_axes = 1;        // 1 = text; 2 = (y, x); 3 = (t, y, x)
  // All segments of divided items of which this rank holds a part, by ascending id; those that it holds no row of
  // included. The same on all ranks that share the item.
  std::vector<SplitSegment> splits;

  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return offsets.back(); }
  int64_t length(int64_t s) const { return offsets[s + 1] - offsets[s]; }

  // Appends a segment; positions must hold length x position_axes numbers, or be empty for 0, 1, 2, ... Its id is the
  // given one, or count().
  void append(int64_t length, SegmentKey key, const std::vector<int64_t>& segment_positions = {}, int64_t id = -1);
};

// By name; "" is the default partition.
using Partitions = std::map<std::string, Segments, std::less<>>;

}  // namespace loom
