// The kernels for AVX2 and FMA; flags are set in CMakeLists.txt.
#include "core/nn/kernels/make_set.h"

namespace loom::kernels {

extern const KernelSet<float> k_avx2_float;
extern const KernelSet<double> k_avx2_double;
const KernelSet<float> k_avx2_float = make_set<float>();
const KernelSet<double> k_avx2_double = make_set<double>();

}  // namespace loom::kernels
