// A CPU block has a line of 64 bytes in front that holds its size and where it came from, so counting costs no second
// allocation and alignment stays what it was. A meta block is nothing but its size, kept in the place of a context
// pointer.
#include "core/parallel/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <unistd.h>

#include <atomic>
#include <mutex>

#include "core/base/gpu.h"
#include "core/parallel/memory_pool.h"

namespace loom {
namespace {

constexpr size_t kLine = 64;
constexpr uint8_t kPriority = 100;  // above LibTorch's own

thread_local bool counted = false;
std::atomic<bool> installed{false};

struct alignas(kLine) Counter {
  std::atomic<int64_t> live{0}, peak{0};

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t before = peak.load(std::memory_order_relaxed);
    while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
  void remove(int64_t bytes) { live.fetch_sub(bytes, std::memory_order_relaxed); }
};

Counter cpu, meta;

Counter* counter_of(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? &cpu : device == c10::DeviceType::Meta ? &meta : nullptr;
}

// Smaller blocks are the C library's. Under AddressSanitizer all are, so that it sees every use after the end.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kPooled = SIZE_MAX;
#else
constexpr size_t kPooled = size_t{128} << 10;
#endif

// As many addresses as the machine has memory; what does not fit asks the C library, which then says so.
MemoryPool& pool() {
  static auto* made =  // never destroyed: tensors may outlive every destructor of the process
      new MemoryPool(static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  return *made;
}

struct alignas(kLine) Line {
  int64_t counted = 0;
  PoolBlock* block = nullptr;  // null = of the C library
};

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_block, c10::Device(c10::DeviceType::CPU)};
    PoolBlock* const pooled = bytes >= kPooled ? pool().allocate(bytes + kLine) : nullptr;
    auto* const line = static_cast<Line*>(pooled != nullptr ? pooled->at : c10::alloc_cpu(bytes + kLine));
    *line = Line{counted ? static_cast<int64_t>(bytes) : 0, pooled};
    if (line->counted > 0) cpu.add(line->counted);
    void* block = line + 1;
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free_block(void* block) {
    if (block == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(block);
    Line* const line = static_cast<Line*>(block) - 1;
    if (line->counted > 0) cpu.remove(line->counted);
    if (line->block != nullptr) {
      pool().free(line->block);
    } else {
      c10::free_cpu(line);
    }
  }
};

class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    meta.add(static_cast<int64_t>(bytes));
    // A context of zero is none, and its deleter is not called.
    return {nullptr, reinterpret_cast<void*>(bytes), &forget, c10::Device(c10::DeviceType::Meta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &forget; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}

 private:
  static void forget(void* bytes) { meta.remove(static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes))); }
};

}  // namespace

void install_memory_meter() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Tensors may outlive every destructor of the process.
    c10::SetAllocator(c10::DeviceType::CPU, new CpuAllocator, kPriority);
    c10::SetAllocator(c10::DeviceType::Meta, new MetaAllocator, kPriority);
    installed = true;
  });
  counted = true;
}

bool memory_metered() { return installed; }

MemoryUse memory_use(c10::DeviceType device) {
  if (device == c10::DeviceType::CUDA) {
    const GpuMemory gpu = gpu_memory();
    return {gpu.live, gpu.peak};
  }
  const Counter* counter = counter_of(device);
  if (counter == nullptr) return {};
  return {counter->live.load(std::memory_order_relaxed), counter->peak.load(std::memory_order_relaxed)};
}

int64_t held_bytes() { return memory_metered() ? pool().use().held : 0; }

void end_memory_step() {
  if (memory_metered()) pool().end_step();
}

void release_unused_memory() {
  if (memory_metered()) pool().release_unused();
}

void reset_memory_peak(c10::DeviceType device) {
  if (device == c10::DeviceType::CUDA) return reset_gpu_memory_peak();
  if (Counter* counter = counter_of(device)) counter->peak = counter->live.load(std::memory_order_relaxed);
}

CountMemory::CountMemory(bool count) : before_(counted) { counted = count; }
CountMemory::~CountMemory() { counted = before_; }

void count_memory_of_thread(bool count) { counted = count; }

}  // namespace loom
