#pragma once
// Widths that all components of the zoo share, and what their constructors may be told. Every component is written as a
// plugin author would write it: it declares, computes on the rows it is given, and knows nothing of ranks.
#include <cstdint>
#include <string>

#include "core/model/component.h"

namespace loom::test {

inline constexpr int64_t kZooMedia = 6, kZooFeatures = 8, kZooWidth = 12, kZooVocab = 11;

struct ZooOptions {
  double dropout = 0;
  bool balance = false;  // interior losses
};

// Rows of an item of the one-dimensional encoders.
inline int64_t flat_tokens(const MediaInfo& info) { return info.width * (info.height > 0 ? info.height : 1); }

}  // namespace loom::test
