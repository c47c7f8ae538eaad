// The kernels for the baseline of the architecture; flags are set in CMakeLists.txt.
#include "core/nn/kernels/make_set.h"

namespace loom::kernels {

extern const KernelSet<float> k_generic_float;
extern const KernelSet<double> k_generic_double;
const KernelSet<float> k_generic_float = make_set<float>();
const KernelSet<double> k_generic_double = make_set<double>();

}  // namespace loom::kernels
