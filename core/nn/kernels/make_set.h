#pragma once
// The table of one instruction set; included once per kernel file.
#include "core/nn/kernels/attention_body.h"
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/kernels/rows_body.h"

namespace loom::kernels {
namespace {

template <class T>
constexpr KernelSet<T> make_set() {
  return {&attention_scratch<T>, &attention_forward<T>, &attention_backward<T>,
          &norm_forward<T>,      &norm_backward<T>,     &rotary<T>,
          &swiglu_forward<T>,    &swiglu_backward<T>,   &row_lse<T>,
          &logprob_backward<T>};
}

}  // namespace
}  // namespace loom::kernels
