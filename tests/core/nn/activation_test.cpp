// The values and slopes of the activations against the formulas in long double, far out too.
#include "core/nn/ops/activation.h"

#include <cmath>

#include "tests/core/nn/levels.h"
#include "tests/core/nn/piece_check.h"

namespace loom::test {
namespace {

struct Exact {
  long double value, slope;
};

Exact gelu_of(long double x) {
  const long double phi = 0.5L * erfcl(-x * sqrtl(0.5L));
  return {x * phi, phi + x * expl(-x * x / 2) * 0.398942280401432677939946L};
}

Exact gelu_tanh_of(long double x) {
  const long double root = 0.797884560802865355879892L;
  const long double s = 1 / (1 + expl(-2 * root * (x + 0.044715L * x * x * x)));
  return {x * s, s + x * s * (1 - s) * 2 * root * (1 + 3 * 0.044715L * x * x)};
}

template <class T>
void check(Activation activation, Exact (*exact)(long double), double low, double relative) {
  const int64_t count = 40001;
  const Tensor x = (at::arange(count, at::kDouble) / static_cast<double>(count - 1) * (10 - low) + low)
                       .to(sizeof(T) == 8 ? at::kDouble : at::kFloat)
                       .unsqueeze(1);
  const Tensor y = activate(x, activation);
  const ActivationBackward back = activation_backward(x, at::ones_like(x), activation, true);
  EXPECT_TRUE(same_bits(y, back.value));
  double worst = 0, worst_slope = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Exact right = exact(x.const_data_ptr<T>()[i]);
    const auto found = static_cast<long double>(y.const_data_ptr<T>()[i]);
    if (right.value != 0) worst = std::max(worst, static_cast<double>(fabsl((found - right.value) / right.value)));
    const auto slope = static_cast<long double>(back.dx.const_data_ptr<T>()[i]);
    worst_slope = std::max(worst_slope, static_cast<double>(fabsl(slope - right.slope)));
  }
  EXPECT_LE(worst, relative);
  EXPECT_LE(worst_slope, sizeof(T) == 8 ? 2e-15 : 6e-7);
}

TEST(Activation, GeluIsAccurateRelativeToItself) {
  at_every_level([] {
    check<float>(Activation::gelu, gelu_of, -12, 6e-7);
    check<double>(Activation::gelu, gelu_of, -36, 2e-15);
    // The rounding of the cubic is what is left.
    check<float>(Activation::gelu_tanh, gelu_tanh_of, -5, 5e-6);
    check<double>(Activation::gelu_tanh, gelu_tanh_of, -5, 1e-14);
  });
}

TEST(Activation, GeluAtTheEnds) {
  at_every_level([] {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const Tensor x = at::tensor({0.0, -0.0, 1e30, -1e30, 45.0, -45.0}, dtype).unsqueeze(0);
      for (const Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
        const ActivationBackward back = activation_backward(x, at::ones_like(x), activation, true);
        EXPECT_TRUE(at::equal(back.value, at::relu(x)));
        EXPECT_TRUE(at::allclose(back.dx, at::tensor({0.5, 0.5, 1.0, 0.0, 1.0, 0.0}, dtype).unsqueeze(0), 0, 1e-30));
      }
    }
  });
}

TEST(Activation, AnElementDoesNotDependOnItsPlace) {
  at_every_level([] {
    const Tensor x = at::randn({3, 77});
    for (const Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
      const Tensor all = activate(x, activation);
      EXPECT_TRUE(same_bits(activate(x.narrow(1, 5, 31), activation), all.narrow(1, 5, 31)));
    }
  });
}

}  // namespace
}  // namespace loom::test
