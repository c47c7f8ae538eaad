#pragma once
// A box is an axis-aligned part of a global tensor: where it starts and how far it reaches. "Who owns what" of
// parameters, checkpoints and activations is said in lists of boxes (design, idea 5), so that every move of data is one
// intersection of lists.
#include <cstdint>
#include <string>
#include <vector>

namespace loom {

struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> size;

  int64_t rank() const { return static_cast<int64_t>(size.size()); }
  int64_t numel() const;  // 1 for a scalar (no dimensions)
  bool empty() const { return numel() == 0; }
  std::string str() const;  // "[0:4, 8:16]"
};

bool operator==(const Box& a, const Box& b);

// The whole of a tensor of this shape.
Box whole_box(const std::vector<int64_t>& shape);
// The common part; an empty box (some size 0) when there is none. Both must have the same number of dimensions.
Box intersect(const Box& a, const Box& b);
// Does every element of `inner` lie in `outer`? An empty box lies everywhere.
bool contains(const Box& outer, const Box& inner);
// Do the boxes cover `whole` exactly once?
bool tiles(const std::vector<Box>& boxes, const Box& whole);

}  // namespace loom
