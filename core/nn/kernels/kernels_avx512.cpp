// The kernels for AVX-512 (F, BW, DQ, VL); flags are set in CMakeLists.txt.
#include "core/nn/kernels/make_set.h"

namespace loom::kernels {

extern const KernelSet<float> k_avx512_float;
extern const KernelSet<double> k_avx512_double;
const KernelSet<float> k_avx512_float = make_set<float>();
const KernelSet<double> k_avx512_double = make_set<double>();

}  // namespace loom::kernels
