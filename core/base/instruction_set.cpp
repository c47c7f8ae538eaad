#include "core/base/instruction_set.h"

namespace loom {

bool supports(InstructionSet set) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (set == InstructionSet::avx512) {
    return supports(InstructionSet::avx2) && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0;
  }
#endif
  return set == InstructionSet::generic;
}

InstructionSet best_instruction_set() {
  if (supports(InstructionSet::avx512)) return InstructionSet::avx512;
  return supports(InstructionSet::avx2) ? InstructionSet::avx2 : InstructionSet::generic;
}

}  // namespace loom
