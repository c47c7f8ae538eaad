// gpu_check cpu|cuda|cuda:N UNITS.yaml: compares the device with the CPU, piece by piece and unit by unit; exit code 1
// when anything is too far off. With cpu the other side is made of ATen's operations instead of the fused pieces.
#include <ATen/ATen.h>

#include <cstdio>
#include <exception>

#include "core/base/error.h"
#include "core/base/gpu.h"
#include "core/parallel/memory_meter.h"
#include "pipelines/device.h"
#include "tests/gpu/compare.h"

namespace {

int run(const std::string& name, const std::string& units) {
  loom::install_memory_meter();
  const c10::Device device(name == "cuda" ? "cuda:0" : name);
  LOOM_CHECK_USER(device.is_cpu() || (device.is_cuda() && loom::gpu_count() > device.index()), name, ": ",
                  loom::gpu_text());
  if (device.is_cuda()) loom::use_gpu(device.index());
  std::printf("gpu_check: %s against the cpu\n", loom::device_text(device).c_str());
  loom::gpu::Compare compare(device, device.is_cpu());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) loom::gpu::check_pieces(compare, type);
  for (const char* precision : {"fp32", "bf16"}) loom::gpu::check_units(compare, units, precision, false);
  loom::gpu::check_units(compare, units, "fp32", true);
  std::printf("gpu_check: %d of %d within their limits\n", compare.checks() - compare.failures(), compare.checks());
  return compare.failures() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    LOOM_CHECK_USER(argc == 3, "usage: gpu_check cpu|cuda|cuda:N UNITS.yaml");
    return run(argv[1], argv[2]);
  } catch (const loom::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
