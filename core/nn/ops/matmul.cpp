#include "core/nn/ops/matmul.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace loom {

void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate) {
  const c10::NoGradGuard no_grad;
  Tensor result = out;
  if (accumulate) {
    result.addmm_(a, b);
  } else {
    at::mm_out(result, a, b);
  }
}

void matmul_add_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& start) {
  const c10::NoGradGuard no_grad;
  Tensor result = out;
  at::addmm_out(result, start, a, b);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  const c10::NoGradGuard no_grad;
  return at::mm(a, b);
}

}  // namespace loom
