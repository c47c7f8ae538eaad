// Which set is in use: asked of the processor once.
#include "core/nn/kernels/kernel_set.h"

#include <atomic>

namespace loom::kernels {

extern const KernelSet<float> k_generic_float;
extern const KernelSet<double> k_generic_double;
#ifdef OMNILOOM_X86_KERNELS
extern const KernelSet<float> k_avx2_float, k_avx512_float;
extern const KernelSet<double> k_avx2_double, k_avx512_double;
#endif

namespace {

Level best_level() {
  if (level_supported(Level::avx512)) return Level::avx512;
  return level_supported(Level::avx2) ? Level::avx2 : Level::generic;
}

std::atomic<Level>& level_in_use() {
  static std::atomic<Level> level{best_level()};
  return level;
}

}  // namespace

const char* level_name(Level level) {
  switch (level) {
    case Level::avx2:
      return "avx2";
    case Level::avx512:
      return "avx512";
    case Level::generic:
      break;
  }
  return "generic";
}

bool level_supported(Level level) {
#ifdef OMNILOOM_X86_KERNELS
  __builtin_cpu_init();
  if (level == Level::avx2) return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (level == Level::avx512) {
    return level_supported(Level::avx2) && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0;
  }
#endif
  return level == Level::generic;
}

Level current_level() { return level_in_use().load(); }
void use_level(Level level) { level_in_use().store(level_supported(level) ? level : best_level()); }

bool library_products_are_faster() {
#ifdef OMNILOOM_X86_KERNELS
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0 || best_level() == Level::generic;
#else
  return true;
#endif
}

template <>
const KernelSet<float>& kernel_set<float>() {
#ifdef OMNILOOM_X86_KERNELS
  if (current_level() == Level::avx512) return k_avx512_float;
  if (current_level() == Level::avx2) return k_avx2_float;
#endif
  return k_generic_float;
}

template <>
const KernelSet<double>& kernel_set<double>() {
#ifdef OMNILOOM_X86_KERNELS
  if (current_level() == Level::avx512) return k_avx512_double;
  if (current_level() == Level::avx2) return k_avx2_double;
#endif
  return k_generic_double;
}

}  // namespace loom::kernels
