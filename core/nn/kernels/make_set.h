#pragma once
// The table of one instruction set; included once per kernel file.
#include "core/nn/kernels/attention_backward.h"
#include "core/nn/kernels/gelu_body.h"
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/kernels/log_probs_body.h"
#include "core/nn/kernels/matmul_body.h"
#include "core/nn/kernels/rows_body.h"

namespace loom::kernels {
namespace {

template <class T>
constexpr KernelSet<T> make_set() {
  return {&attention_sizes<T>, &attention_forward<T>, &attention_backward<T>, &norm_forward<T>, &norm_backward<T>,
          &rotary<T>,          &swiglu_forward<T>,    &swiglu_backward<T>,    &row_lse<T>,      &logprob_backward<T>,
          &gelu_forward<T>,    &gelu_backward<T>,     &column_sums<T>,        &gather_rows<T>,  &scatter_rows<T>,
          kMatmulRows,         kMatmulColumns<T>,     &matmul_scratch<T>,     &matmul<T>,       &logprob_both<T>};
}

}  // namespace
}  // namespace loom::kernels
