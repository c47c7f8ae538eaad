// Segments are built once per microbatch from metadata.
#include "core/step/segments.h"

#include "core/base/error.h"

namespace loom {

void Segments::append(int64_t length, SegmentKey key, const std::vector<int64_t>& segment_positions, int64_t id) {
  LOOM_CHECK(length >= 0, "segment length ", length);
  LOOM_CHECK(segment_positions.empty() || static_cast<int64_t>(segment_positions.size()) == length * position_axes,
             "segment of ", length, " rows and ", position_axes, " axes with ", segment_positions.size(), " positions");
  ids.push_back(id >= 0 ? id : count());
  offsets.push_back(offsets.back() + length);
  keys.push_back(key);
  if (!segment_positions.empty()) {
    positions.insert(positions.end(), segment_positions.begin(), segment_positions.end());
    return;
  }
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t axis = 0; axis < position_axes; ++axis) positions.push_back(axis + 1 == position_axes ? i : 0);
  }
}

}  // namespace loom
