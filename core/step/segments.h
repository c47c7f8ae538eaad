#pragma once
// A stream is a tensor [rows, width] plus Segments: which runs of rows attend to each other, whose they are, and where
// each row stands in its sample. Pure functions of metadata; known before any pixel is read.
#include <cstdint>
#include <vector>

namespace loom {

// Whose rows a segment holds; what randomness is a function of.
struct SegmentKey {
  uint64_t sample = 0;      // key of the sample
  uint64_t occurrence = 0;  // which item of the sample (0 for text)
  int64_t first_row = 0;    // index of the segment's first row within its item
};

struct Segments {
  std::vector<int64_t> offsets{0};  // cu_seqlens: segment s is rows [offsets[s], offsets[s+1])
  std::vector<SegmentKey> keys;     // one per segment
  std::vector<int64_t> positions;   // rows x position_axes, row-major; within the item, not within the pack
  int64_t position_axes = 1;        // 1 = text; 2 = (y, x); 3 = (t, y, x)

  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return offsets.back(); }
  int64_t length(int64_t s) const { return offsets[s + 1] - offsets[s]; }

  // Appends a segment; positions must hold length x position_axes numbers, or be empty for 0, 1, 2, ...
  void append(int64_t length, SegmentKey key, const std::vector<int64_t>& segment_positions = {});
};

}  // namespace loom
