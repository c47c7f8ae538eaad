#include "core/base/first_calls.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace loom {

void settle_vector_math() {
  static const bool settled = [] {
    const c10::NoGradGuard no_grad;
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor x = at::linspace(0.1, 0.9, 256, at::TensorOptions(type));
      for (const auto& function : {at::cos, at::sin, at::exp, at::log, at::tanh, at::erf, at::sqrt}) function(x);
      at::log1p(x);
      at::pow(x, 1.5);
      at::pow(1.5, x);
      at::logsumexp(x, {0});
      at::softmax(x, 0);
      at::gelu(x);
    }
    return true;
  }();
  static_cast<void>(settled);
}

}  // namespace loom
