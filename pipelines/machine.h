#pragma once
// The machine a run is on: what `omniloom env` prints and the head of a run names.
#include <cstdint>
#include <string>

#include <c10/core/ScalarType.h>

namespace loom {

struct Machine {
  std::string cpu;           // "Intel(R) Xeon(R) Platinum 8481C"
  int cores = 1;             // that this process may use
  int64_t memory = 0;        // bytes, of the machine or of the limit set for this process
  std::string isa;           // of the kernels in use: "avx512", "avx2", "generic"
  bool native_bf16 = false;  // matrix instructions for bfloat16 (avx512_bf16, amx_bf16)
};

Machine this_machine();

// Seconds since this process was started, to a hundredth; 0 where the system does not say.
double process_age_seconds();

// Floating-point operations per second of a large matrix product with `threads` threads: the best of several tries,
// some tenths of a second in all. What "percent of peak" is measured against.
double measured_gemm_peak(at::ScalarType dtype, int threads);

}  // namespace loom
