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

std::atomic<Level>& level_in_use() {
  static std::atomic<Level> level{best_instruction_set()};
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

Level current_level() { return level_in_use().load(); }
void use_level(Level level) { level_in_use().store(supports(level) ? level : best_instruction_set()); }

bool library_products_are_faster() {
#ifdef OMNILOOM_X86_KERNELS
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0 || best_instruction_set() == Level::generic;
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
