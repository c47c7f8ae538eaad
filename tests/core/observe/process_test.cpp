// Memory of this process: what is touched is counted, and the peak stays.
#include "core/observe/process.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace loom {
namespace {

TEST(Process, MemoryThatIsTouchedIsCounted) {
  constexpr int64_t kBytes = 64 << 20;
  const ProcessMemory before = process_memory();
  ASSERT_GT(before.resident, 0);
  EXPECT_GE(before.peak, before.resident);
  {
    const std::unique_ptr<char[]> block(new char[kBytes]);
    std::memset(block.get(), 1, kBytes);
    EXPECT_GT(process_memory().resident, before.resident + kBytes / 2) << block[kBytes / 2];
  }
  const ProcessMemory after = process_memory();
  EXPECT_LT(after.resident, before.resident + kBytes / 2);
  EXPECT_GE(after.peak, before.resident + kBytes / 2);
}

}  // namespace
}  // namespace loom
