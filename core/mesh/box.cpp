// Plain loops over a handful of dimensions. tiles() needs no grid: parts that lie inside, do not meet and add up to the
// whole cover it exactly once.
#include "core/mesh/box.h"

#include <algorithm>

#include "core/base/error.h"

namespace loom {

int64_t Box::numel() const {
  int64_t n = 1;
  for (const int64_t extent : size) n *= extent;
  return n;
}

std::string Box::str() const {
  std::string out = "[";
  for (size_t d = 0; d < size.size(); ++d) {
    if (d > 0) out += ", ";
    out += std::to_string(offset[d]) + ":" + std::to_string(offset[d] + size[d]);
  }
  return out + "]";
}

bool operator==(const Box& a, const Box& b) { return a.offset == b.offset && a.size == b.size; }

Box whole_box(const std::vector<int64_t>& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

Box intersect(const Box& a, const Box& b) {
  LOOM_CHECK(a.rank() == b.rank(), "boxes ", a.str(), " and ", b.str(), " differ in dimensions");
  Box out = a;
  for (size_t d = 0; d < a.size.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    out.offset[d] = begin;
    out.size[d] = std::max<int64_t>(0, end - begin);
  }
  return out;
}

bool contains(const Box& outer, const Box& inner) { return inner.empty() || intersect(outer, inner) == inner; }

std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  if (begin >= end) return {};
  if (shape.empty()) return {Box{}};
  int64_t row = 1;
  for (size_t d = 1; d < shape.size(); ++d) row *= shape[d];
  const std::vector<int64_t> inner(shape.begin() + 1, shape.end());
  std::vector<Box> out;
  const auto add = [&](int64_t first, int64_t rows, const Box& part) {
    Box box{{first}, {rows}};
    box.offset.insert(box.offset.end(), part.offset.begin(), part.offset.end());
    box.size.insert(box.size.end(), part.size.begin(), part.size.end());
    out.push_back(std::move(box));
  };
  const auto add_part_of_row = [&](int64_t at, int64_t from, int64_t to) {
    for (const Box& part : boxes_of_range(inner, from, to)) add(at, 1, part);
  };
  int64_t first = begin / row;
  const int64_t last = end / row, head = begin % row, tail = end % row;
  if (first == last) {
    add_part_of_row(first, head, tail);
    return out;
  }
  if (head > 0) add_part_of_row(first++, head, row);
  if (first < last) add(first, last - first, whole_box(inner));
  if (tail > 0) add_part_of_row(last, 0, tail);
  return out;
}

int64_t first_element(const Box& box, const std::vector<int64_t>& shape) {
  int64_t at = 0;
  for (size_t d = 0; d < box.offset.size(); ++d) at = at * shape[d] + box.offset[d];
  return at;
}

void each_run(const Box& box, const std::vector<int64_t>& shape,
              const std::function<void(int64_t global, int64_t local, int64_t n)>& f) {
  if (box.empty()) return;
  size_t outer = shape.size();  // dimensions in front of a run
  int64_t run = 1;
  while (outer > 0) {
    run *= box.size[--outer];
    if (box.size[outer] != shape[outer]) break;
  }
  Box row = box;
  for (size_t d = 0; d < outer; ++d) row.size[d] = 1;
  for (int64_t local = 0; local < box.numel(); local += run) {
    f(first_element(row, shape), local, run);
    for (size_t d = outer; d-- > 0;) {
      if (++row.offset[d] < box.offset[d] + box.size[d]) break;
      row.offset[d] = box.offset[d];
    }
  }
}

bool tiles(const std::vector<Box>& boxes, const Box& whole) {
  int64_t covered = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!contains(whole, boxes[i])) return false;
    covered += boxes[i].numel();
    for (size_t j = 0; j < i; ++j) {
      if (!intersect(boxes[i], boxes[j]).empty()) return false;
    }
  }
  return covered == whole.numel();
}

}  // namespace loom
