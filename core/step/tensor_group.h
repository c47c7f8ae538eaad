#pragma once
// A tensor group: neighbouring ranks that share a component's layers, and what each holds of something that is made of
// blocks (KV groups, hidden columns, rows of a vocabulary).
#include <cstdint>

namespace loom {

struct TensorGroup {
  int ranks = 1;
  int index = 0;  // of this rank
};

struct BlockShare {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// Consecutive blocks, as even as they go.
constexpr BlockShare share_of(int64_t blocks, const TensorGroup& group) {
  return {blocks * group.index / group.ranks, blocks * (group.index + 1) / group.ranks};
}

}  // namespace loom
