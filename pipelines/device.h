#pragma once
// Where a run computes: what train.device says, what the machine has, and how both are told.
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "pipelines/recipe.h"

namespace loom {

// UserError unless train.device is auto, cpu, cuda or cuda:N; whether there is such a GPU is not asked.
void check_device(const Recipe& recipe);
// The device of a rank that is one of `ranks` in this process, whose first rank is `local` on its machine. UserError
// when it is not to be had. auto and cuda = the GPU of that number (rank modulo GPUs), auto = the CPU where none
// answers. A GPU is in use by the calling thread from then on.
c10::Device choose_device(const Recipe& recipe, int ranks, int local = 0);

// "NVIDIA H200 (cuda:0)", "cpu".
std::string device_text(c10::Device device);
// Of CUDA: "13.0 built in, no GPU here", "13.0 · NVIDIA H200, 141 GB, sm_90", "not built in".
std::string gpu_text();

// Floating-point operations per second of a large matrix product on the GPU in use: the best of several.
double measured_gpu_peak(at::ScalarType dtype);

}  // namespace loom
