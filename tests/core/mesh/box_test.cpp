// Boxes against brute force over every element of small tensors.
#include "core/mesh/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/random.h"

namespace loom {
namespace {

using Cell = std::pair<int64_t, int64_t>;

std::set<Cell> cells(const Box& box) {
  std::set<Cell> out;
  for (int64_t y = 0; y < box.size[0]; ++y) {
    for (int64_t x = 0; x < box.size[1]; ++x) out.insert({box.offset[0] + y, box.offset[1] + x});
  }
  return out;
}

Box random_box(const Philox& random, uint64_t& at) {
  Box box;
  for (int d = 0; d < 2; ++d) {
    box.offset.push_back(static_cast<int64_t>(random.below(5, at++)));
    box.size.push_back(static_cast<int64_t>(random.below(6, at++)));
  }
  return box;
}

TEST(Box, IntersectAndContainsAgreeWithBruteForce) {
  const Philox random(RandomKey{.seed = 3});
  uint64_t at = 0;
  int meetings = 0;
  for (int round = 0; round < 500; ++round) {
    const Box a = random_box(random, at), b = random_box(random, at);
    const std::set<Cell> in_a = cells(a), in_b = cells(b);
    std::set<Cell> both;
    for (const Cell& cell : in_a) {
      if (in_b.count(cell) > 0) both.insert(cell);
    }
    EXPECT_EQ(cells(intersect(a, b)), both) << a.str() << " " << b.str();
    EXPECT_EQ(contains(a, b), both == in_b) << a.str() << " " << b.str();
    meetings += both.empty() ? 0 : 1;
  }
  EXPECT_GT(meetings, 50);
}

TEST(Box, ScalarsAndEmptyTensors) {
  const Box scalar = whole_box({});
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_TRUE(contains(scalar, scalar));
  EXPECT_EQ(intersect(scalar, scalar).numel(), 1);
  EXPECT_TRUE(tiles({scalar}, scalar));
  EXPECT_FALSE(tiles({}, scalar));
  EXPECT_TRUE(whole_box({0, 3}).empty());
  EXPECT_TRUE(tiles({}, whole_box({0, 3})));
}

TEST(Box, TilesFindsGapsOverlapsAndParts) {
  const Box whole = whole_box({4, 6});
  EXPECT_TRUE(tiles({{{0, 0}, {4, 2}}, {{0, 2}, {1, 4}}, {{1, 2}, {3, 4}}}, whole));
  EXPECT_FALSE(tiles({{{0, 0}, {4, 2}}, {{1, 2}, {3, 4}}}, whole));  // a gap
  EXPECT_FALSE(tiles({{{0, 0}, {4, 3}}, {{0, 2}, {4, 3}}}, whole));  // right count, but they overlap
  EXPECT_FALSE(tiles({{{0, 0}, {4, 6}}, {{4, 0}, {1, 6}}}, whole));  // one lies outside
}

TEST(Box, ARangeOfElementsIsAFewBoxesInOrder) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {7}, {3, 5}, {4, 1, 3}, {2, 3, 4}, {3, 2, 2, 3}};
  int most = 0;
  for (const std::vector<int64_t>& shape : shapes) {
    const Box whole = whole_box(shape);
    for (int64_t begin = 0; begin <= whole.numel(); ++begin) {
      for (int64_t end = begin; end <= whole.numel(); ++end) {
        int64_t at = begin;
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        for (const Box& box : boxes) {
          EXPECT_TRUE(contains(whole, box));
          EXPECT_FALSE(box.empty());
          EXPECT_EQ(first_element(box, shape), at);
          at += box.numel();
        }
        EXPECT_EQ(at, end);
        EXPECT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
        most = std::max(most, static_cast<int>(boxes.size()));
      }
    }
    std::vector<Box> parts = boxes_of_range(shape, 0, whole.numel() / 3);
    for (const Box& box : boxes_of_range(shape, whole.numel() / 3, whole.numel())) parts.push_back(box);
    EXPECT_TRUE(tiles(parts, whole));
  }
  EXPECT_EQ(most, 7);
}

TEST(Box, TextAndMismatch) {
  EXPECT_EQ((Box{{0, 8}, {4, 8}}.str()), "[0:4, 8:16]");
  EXPECT_EQ(whole_box({}).str(), "[]");
  EXPECT_THROW(intersect(whole_box({2}), whole_box({2, 2})), InternalError);
}

}  // namespace
}  // namespace loom
