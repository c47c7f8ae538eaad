#pragma once
// In which shares sources are mixed, over the endless order of samples. Positions count samples of that order, skipped
// ones included, so a mix that changes is still a function of the position alone.
#include <cstdint>
#include <vector>

namespace loom {

// A stretch of the order with one mix; it ends where the next one begins.
struct MixSegment {
  uint64_t begin = 0;  // position of its first sample
  std::vector<double>
      weights;  // of the sources, in their order; 0 = none of it; empty = what the sources say themselves
};

// What a recipe says: a mix up to a position. With `ramp`, shares go linearly to those of the next stage.
struct MixStage {
  uint64_t until = 0;  // the first position that it does not hold; not of the last stage
  std::vector<double> weights;
  bool ramp = false;
};

constexpr uint64_t kRampPieces = 32;  // a ramp is made of so many segments, of equal length

// Stages as segments. They have passed the recipe's checks: `until` ascends, the last stage is no ramp.
std::vector<MixSegment> mix_segments(const std::vector<MixStage>& stages);

// The change takes the place of all that begins where it does or later.
void change_mix(std::vector<MixSegment>& segments, MixSegment change);

bool operator==(const MixSegment& a, const MixSegment& b);

}  // namespace loom
