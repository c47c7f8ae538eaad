// Who writes what: every element once, copies shared out evenly, the same on all ranks.
#include "core/checkpoint/save_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

TensorPart part(const std::string& name, const std::vector<int64_t>& shape, Box box = {}) {
  if (box.size.empty()) box = whole_box(shape);
  return {name, at::kFloat, shape, box};
}

double unevenness(const SavePlan& plan) {
  const int64_t total = std::accumulate(plan.bytes.begin(), plan.bytes.end(), int64_t{0});
  const int64_t most = *std::max_element(plan.bytes.begin(), plan.bytes.end());
  return static_cast<double>(most) * static_cast<double>(plan.bytes.size()) / static_cast<double>(total);
}

TEST(SavePlan, CopiesAreSharedOutEvenly) {
  // 24 blocks of a transformer with their optimizer state, an embedding a tenth of everything.
  const Philox random(RandomKey{.seed = 5});
  for (const int world : {2, 3, 4, 8, 16}) {
    std::vector<TensorPart> parts = {part("embed", {1000, 64})};
    for (uint64_t block = 0; block < 24 * 3; ++block) {
      parts.push_back(part(concat("block", block, ".qkv"), {192, 64}));
      parts.push_back(part(concat("block", block, ".norm"), {64}));
      parts.push_back(part(concat("block", block, ".mlp"), {static_cast<int64_t>(100 + random.below(100, block)), 64}));
    }
    const std::vector<std::vector<TensorPart>> held(static_cast<size_t>(world), parts);
    const SavePlan plan = plan_save(held);
    EXPECT_EQ(plan.boxes.size(), parts.size());
    EXPECT_LE(unevenness(plan), 1.1) << world;
    std::vector<int64_t> bytes(static_cast<size_t>(world), 0);
    for (const PlannedBox& box : plan.boxes) bytes[static_cast<size_t>(box.writer)] += box.part.bytes();
    EXPECT_EQ(bytes, plan.bytes);
  }
}

TEST(SavePlan, OnlyHoldersWriteAndWhatOneHoldsCountsFirst) {
  // Rank 0 alone holds the large one, so the copies go to rank 1.
  const SavePlan plan =
      plan_save({{part("a", {4}), part("b", {8}), part("large", {100})}, {part("a", {4}), part("b", {8})}});
  std::map<std::string, int> writer;
  for (const PlannedBox& box : plan.boxes) writer[box.key] = box.writer;
  EXPECT_EQ(writer, (std::map<std::string, int>{{"a", 1}, {"b", 1}, {"large", 0}}));
  EXPECT_EQ(plan.bytes, (std::vector<int64_t>{400, 48}));
}

TEST(SavePlan, KeysSayWhichPart) {
  const Box top{{0, 0}, {3, 2}}, bottom{{3, 0}, {1, 2}};
  const SavePlan plan = plan_save({{part("w", {4, 2}, bottom)}, {part("w", {4, 2}, top), {"s", at::kLong, {}, {}}}});
  ASSERT_EQ(plan.boxes.size(), 3u);
  EXPECT_EQ(plan.boxes[0].key, "s");
  EXPECT_EQ(plan.boxes[1].key, "w[0:3, 0:2]");
  EXPECT_EQ(plan.boxes[1].writer, 1);
  EXPECT_EQ(plan.boxes[2].key, "w[3:4, 0:2]");
  EXPECT_EQ(plan.boxes[2].writer, 0);
}

TEST(SavePlan, WhatDoesNotFitTogetherIsOurBug) {
  const auto text = [](const std::vector<std::vector<TensorPart>>& held) {
    return test::message_of<InternalError>([&] { plan_save(held); });
  };
  EXPECT_HAS(text({{part("w", {4}, Box{{0}, {2}})}, {part("w", {4}, Box{{3}, {1}})}}), "do not hold w exactly once");
  EXPECT_HAS(text({{part("w", {4})}, {part("w", {5})}}), "on rank 1");
  EXPECT_HAS(text({{part("w", {4}), part("w", {4})}}), "twice");
}

TEST(SavePlan, PartsTravelAsText) {
  const std::vector<TensorPart> parts = {part("w", {4, 2}, Box{{3, 0}, {1, 2}}), {"s", at::kBFloat16, {}, {}}};
  EXPECT_EQ(parse_parts(parts_text(parts)), parts);
  EXPECT_EQ(rank_file(12), "rank-00012.safetensors");
}

}  // namespace
}  // namespace loom
