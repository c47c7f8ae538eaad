// Bytes of tensors, counted where they are made and forgotten where they are freed.
#include "core/parallel/memory_meter.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <thread>

#include "core/parallel/slab_pool.h"
#include "core/parallel/unit_buffer.h"

namespace loom::test {
namespace {

constexpr auto kCpu = c10::DeviceType::CPU, kMeta = c10::DeviceType::Meta;

at::Tensor bytes_on(c10::DeviceType device, int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
}

TEST(MemoryMeter, LiveAndPeakAreExact) {
  install_memory_meter();
  EXPECT_TRUE(memory_metered());
  for (const auto device : {kCpu, kMeta}) {
    reset_memory_peak(device);
    const int64_t before = memory_use(device).live;
    EXPECT_EQ(memory_use(device).peak, before);
    {
      const at::Tensor a = bytes_on(device, 1000);
      EXPECT_EQ(memory_use(device).live, before + 1000);
      {
        const at::Tensor b = bytes_on(device, 77), view = b.narrow(0, 3, 10), none = bytes_on(device, 0);
        EXPECT_EQ(memory_use(device).live, before + 1077);
      }
      EXPECT_EQ(memory_use(device).live, before + 1000);
      reset_memory_peak(device);
      EXPECT_EQ(memory_use(device).peak, before + 1000);
    }
    EXPECT_EQ(memory_use(device).live, before);
    EXPECT_EQ(memory_use(device).peak, before + 1000);
  }
  EXPECT_EQ(memory_use(c10::DeviceType::CUDA).peak, 0);
}

TEST(MemoryMeter, ATensorOfADryRunHoldsNoMemory) {
  install_memory_meter();
  const int64_t cpu = memory_use(kCpu).live, meta = memory_use(kMeta).live, huge = int64_t{1} << 45;
  const at::Tensor x = at::zeros({huge / 4}, at::TensorOptions(at::kFloat).device(at::kMeta));
  const at::Tensor y = x + 1;
  EXPECT_EQ(memory_use(kMeta).live, meta + 2 * huge);
  EXPECT_EQ(memory_use(kCpu).live, cpu);
}

TEST(MemoryMeter, ThreadsThatAreNotCountedStayOutWhoeverFrees) {
  install_memory_meter();
  const int64_t before = memory_use(kCpu).live;
  at::Tensor loaded, counted;
  std::thread([&] { loaded = bytes_on(kCpu, 5000); }).join();
  EXPECT_EQ(memory_use(kCpu).live, before);
  std::thread([&] {
    const CountMemory count;
    counted = bytes_on(kCpu, 300);
  }).join();
  EXPECT_EQ(memory_use(kCpu).live, before + 300);
  {
    const CountMemory pause(false);
    const at::Tensor aside = bytes_on(kCpu, 400);
    EXPECT_EQ(memory_use(kCpu).live, before + 300);
  }
  loaded = at::Tensor();
  EXPECT_EQ(memory_use(kCpu).live, before + 300);
  std::thread([&] { counted = at::Tensor(); }).join();
  EXPECT_EQ(memory_use(kCpu).live, before);
}

TEST(MemoryMeter, MemoryKeepsItsAlignmentAndContents) {
  install_memory_meter();
  for (const int64_t bytes : {1, 63, 64, 100000, 5000000}) {
    at::Tensor x = bytes_on(kCpu, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data_ptr()) % 64, 0u);
    x.fill_(7);
    x.resize_({2 * bytes});
    EXPECT_TRUE(x.narrow(0, 0, bytes).eq(7).all().item<bool>());
    EXPECT_TRUE(x.storage().data_ptr().get() == x.storage().data_ptr().get_context());
  }
}

TEST(MemoryMeter, LargeMemoryIsKeptForTheNextTensorAndCountedOnce) {
  install_memory_meter();
  const int64_t live = memory_use(kCpu).live, size = int64_t{3} << 20;
  release_unused_memory();
  [[maybe_unused]] const int64_t held = held_bytes();
  [[maybe_unused]] const void* where = nullptr;
  {
    const at::Tensor x = bytes_on(kCpu, size);
    where = x.data_ptr();
    EXPECT_EQ(memory_use(kCpu).live, live + size);
  }
  EXPECT_EQ(memory_use(kCpu).live, live);
  const at::Tensor y = bytes_on(kCpu, size - 5000);
  EXPECT_EQ(memory_use(kCpu).live, live + size - 5000);
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_GE(held_bytes(), held + size);
  EXPECT_LE(held_bytes(), held + size + 8192);
  EXPECT_EQ(y.data_ptr(), where);
#endif
}

TEST(MemoryMeter, ThePeakOfManyThreadsIsTheirSum) {
  install_memory_meter();
  reset_memory_peak(kCpu);
  const int64_t before = memory_use(kCpu).live;
  std::vector<at::Tensor> held(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < held.size(); ++t) {
    threads.emplace_back([&, t] {
      const CountMemory count;
      for (int64_t i = 1; i < 200; ++i) held[t] = bytes_on(kCpu, 10 * i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory_use(kCpu).live, before + 8 * 1990);
  EXPECT_GE(memory_use(kCpu).peak, before + 8 * 1990);
  EXPECT_LE(memory_use(kCpu).peak, before + 8 * (1990 + 1980));
}

TEST(MemoryMeter, SlabsAndBuffersAreAmongIt) {
  install_memory_meter();
  for (const auto device : {kCpu, kMeta}) {
    const int64_t before = memory_use(device).live;
    UnitBuffer::Options options;
    options.compute = at::kBFloat16;
    options.device = c10::Device(device);
    BufferEntry entry;
    entry.param = 0;
    entry.name = "x";
    entry.shape = {16, 32};
    entry.numel = 512;
    UnitBuffer buffer("unit", {entry}, options);
    EXPECT_EQ(memory_use(device).live, before + 512 * 4);
    SlabPool pool(buffer.slab_bytes(), options.device);
    buffer.gather(pool);
    EXPECT_EQ(memory_use(device).live, before + 512 * 6);
    EXPECT_EQ(buffer.weight(0).device().type(), device);
    buffer.release(pool);
    EXPECT_EQ(memory_use(device).live, before + 512 * 6);  // the pool keeps it
    buffer.gradient();
    EXPECT_EQ(memory_use(device).live, before + 512 * 10);
  }
}

}  // namespace
}  // namespace loom::test
