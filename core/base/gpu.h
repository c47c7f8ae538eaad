#pragma once
// What the program knows of GPUs beside tensors: how many answer, what they are, how much of their memory tensors hold.
// One file says it when Omniloom was built with CUDA (cuda_gpu.cpp), another one says that there is none (no_gpu.cpp);
// the linker decides, so that nobody else includes a header of CUDA.
#include <cstdint>
#include <string>

namespace loom {

struct GpuInfo {
  std::string name;          // "NVIDIA H200"
  int64_t memory = 0;        // bytes
  int major = 0, minor = 0;  // compute capability
};

struct GpuMemory {
  int64_t live = 0;  // bytes that tensors hold
  int64_t peak = 0;  // the largest since the last reset
};

const char* gpu_support();  // "CUDA 13.0"; "" when built without
int gpu_count();            // 0 when none answers or there is no driver
GpuInfo gpu_info(int index);
void use_gpu(int index);  // of the calling thread from now on
// Of the calling thread's GPU; zeros while there is none.
GpuMemory gpu_memory();
void reset_gpu_memory_peak();  // begins anew at what is live now
void synchronize_gpu();        // waits for all that was asked of it

}  // namespace loom
