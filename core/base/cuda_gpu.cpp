// The one file that includes CUDA's runtime and LibTorch's headers about it.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/base/gpu.h"

namespace loom {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

bool in_use() { return allocator::get()->initialized(); }

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw EnvironmentError(concat(what, ": ", cudaGetErrorString(code)));
}

}  // namespace

const char* gpu_support() { return "CUDA " OMNILOOM_CUDA_VERSION; }

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // an error of the past must not be found by the next call
  return 0;
}

GpuInfo gpu_info(int index) {
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, index), "GPU properties");
  return {found.name, static_cast<int64_t>(found.totalGlobalMem), found.major, found.minor};
}

void use_gpu(int index) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
}

GpuMemory gpu_memory() {
  if (!in_use()) return {};
  const auto stats = allocator::getDeviceStats(c10::cuda::current_device());
  const auto& held = stats.allocated_bytes[0];  // over all pools
  return {held.current, held.peak};
}

void reset_gpu_memory_peak() {
  if (in_use()) allocator::resetPeakStats(c10::cuda::current_device());
}

void synchronize_gpu() {
  if (in_use()) c10::cuda::device_synchronize();
}

}  // namespace loom
