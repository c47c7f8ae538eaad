#pragma once
// A box is an axis-aligned part of a global tensor: where it starts and how far it reaches. "Who owns what" of
// parameters, checkpoints and activations is said in lists of boxes (design, idea 5), so that every move of data is one
// intersection of lists.
#include <cstdint>
#include <functional>
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
// Elements [begin, end) of a tensor in row-major order as boxes, in that order: for n dimensions at most 2n - 1.
std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end);
// Where a box's first element stands in that order.
int64_t first_element(const Box& box, const std::vector<int64_t>& shape);
// Calls f(global, local, n) for every run of n elements of the box that lie one after another in the global tensor too:
// from element `global` of it, from element `local` of the box.
void each_run(const Box& box, const std::vector<int64_t>& shape,
              const std::function<void(int64_t global, int64_t local, int64_t n)>& f);
// Do the boxes cover `whole` exactly once?
bool tiles(const std::vector<Box>& boxes, const Box& whole);

}  // namespace loom
