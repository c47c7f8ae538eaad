// Memory that is kept: the same bytes again and again, never two owners, never much more than is needed.
#include "core/parallel/memory_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "core/base/random.h"

namespace loom::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(MemoryPool, AStepThatRepeatsTouchesNothingNew) {
  MemoryPool pool(256 * kMiB);
  int64_t after_first = 0;
  for (int step = 0; step < 4; ++step) {
    pool.end_step();
    std::vector<PoolBlock*> blocks;
    for (const size_t size : {5 * kMiB, 3 * kMiB, 7 * kMiB, 3 * kMiB}) blocks.push_back(pool.allocate(size));
    for (PoolBlock* block : blocks) std::memset(block->at, step, block->size);
    for (size_t i : {1, 0, 3, 2}) pool.free(blocks[i]);
    if (step == 0) after_first = pool.use().unbacked;
  }
  EXPECT_EQ(pool.use().unbacked, after_first);
  EXPECT_EQ(after_first, static_cast<int64_t>(18 * kMiB));
  EXPECT_EQ(pool.use().in_use, 0);
}

TEST(MemoryPool, FreeNeighboursBecomeOnePiece) {
  MemoryPool pool(64 * kMiB);
  std::vector<PoolBlock*> small;
  for (int i = 0; i < 8; ++i) small.push_back(pool.allocate(kMiB));
  for (const size_t i : {0, 2, 4, 6, 1, 3, 5, 7}) pool.free(small[i]);
  PoolBlock* whole = pool.allocate(8 * kMiB);
  EXPECT_EQ(pool.use().unbacked, static_cast<int64_t>(8 * kMiB));
  EXPECT_EQ(pool.use().in_use, static_cast<int64_t>(8 * kMiB));
  pool.free(whole);
}

TEST(MemoryPool, BlocksAreAlignedAndRefusedWhenTheRangeIsFull) {
  MemoryPool pool(4 * kMiB);
  PoolBlock* block = pool.allocate(3 * kMiB + 1);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block->at) % 64, 0u);
  EXPECT_GE(block->size, 3 * kMiB + 1);
  EXPECT_EQ(pool.allocate(kMiB), nullptr);
  EXPECT_EQ(pool.allocate(SIZE_MAX), nullptr);
  pool.free(block);
  block = pool.allocate(4 * kMiB);
  ASSERT_NE(block, nullptr);
  pool.free(block);
}

// What is kept follows what was needed: a large phase is forgotten after two steps without it.
TEST(MemoryPool, WhatIsHeldIsBounded) {
  MemoryPool pool(512 * kMiB, kMiB);
  PoolBlock* large = pool.allocate(100 * kMiB);
  std::memset(large->at, 1, large->size);
  pool.free(large);
  EXPECT_EQ(pool.use().held, static_cast<int64_t>(100 * kMiB));
  PoolBlock* small = pool.allocate(2 * kMiB);
  pool.end_step();
  EXPECT_EQ(pool.use().held, static_cast<int64_t>(100 * kMiB));
  pool.end_step();
  EXPECT_LE(pool.use().held, static_cast<int64_t>(4 * kMiB));
  pool.free(small);
  pool.release_unused();
  EXPECT_EQ(pool.use().held, 0);
  // Memory that was given back is cleared again.
  large = pool.allocate(100 * kMiB);
  EXPECT_EQ(large->at[50 * kMiB], 0);
  pool.free(large);
}

// Sizes that do not fit each other: what is free never sums to much more than a share.
TEST(MemoryPool, RandomSizesAndContentsOnSeveralThreads) {
  MemoryPool pool(1024 * kMiB, kMiB);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      const Philox random({t + 1, Purpose::sample});
      std::map<uint64_t, std::pair<PoolBlock*, char>> held;
      uint64_t at = 0;
      for (int i = 0; i < 3000; ++i) {
        const uint64_t key = random.below(20, at++);
        const auto found = held.find(key);
        if (found == held.end()) {
          PoolBlock* block = pool.allocate(1 + random.below(300000, at++));
          ASSERT_NE(block, nullptr);
          const char value = static_cast<char>(random.below(127, at++));
          block->at[0] = block->at[block->size / 2] = block->at[block->size - 1] = value;
          held[key] = {block, value};
        } else {
          const auto [block, value] = found->second;
          EXPECT_EQ(block->at[0], value);
          EXPECT_EQ(block->at[block->size / 2], value);
          EXPECT_EQ(block->at[block->size - 1], value);
          pool.free(block);
          held.erase(found);
        }
        if (i % 500 == 0) pool.end_step();
        const PoolUse use = pool.use();
        EXPECT_LE(use.held, static_cast<int64_t>(4 * 20 * 300 * 1024 * 17 / 16 + kMiB + 80 * 4096));
        EXPECT_GE(use.held, use.in_use);
      }
      for (const auto& [key, block] : held) pool.free(block.first);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.use().in_use, 0);
  pool.release_unused();
  EXPECT_EQ(pool.use().held, 0);
  PoolBlock* all = pool.allocate(1024 * kMiB);  // everything was joined again
  EXPECT_NE(all, nullptr);
  pool.free(all);
}

}  // namespace
}  // namespace loom::test
