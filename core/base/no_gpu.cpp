// Omniloom was built without CUDA.
#include "core/base/error.h"
#include "core/base/gpu.h"

namespace loom {

const char* gpu_support() { return ""; }
int gpu_count() { return 0; }
GpuInfo gpu_info(int index) { throw InternalError(concat("GPU ", index, " in a build without CUDA")); }
void use_gpu(int index) { gpu_info(index); }
GpuMemory gpu_memory() { return {}; }
void reset_gpu_memory_peak() {}
void synchronize_gpu() {}

}  // namespace loom
