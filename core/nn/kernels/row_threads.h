#pragma once
// Small helpers of layers that hand rows to the kernels: dtypes, strides, threads.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/parallel.h"
#include "core/nn/kernels/kernel_set.h"

namespace loom::rows {

// The kernels compute in double or float; half types are widened.
inline at::ScalarType work_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// In work dtype, columns dense; rows may lie apart.
inline at::Tensor work_tensor(const at::Tensor& x) {
  const at::Tensor wide = x.scalar_type() == work_dtype(x) ? x : x.to(work_dtype(x));
  return wide.dim() == 0 || wide.size(-1) <= 1 || wide.stride(-1) == 1 ? wide : wide.contiguous();
}

template <class T>
kernels::Rows<const T> read(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.size(0) > 1 ? x.stride(0) : x.size(1)};
}

template <class T>
kernels::Rows<T> write(const at::Tensor& x) {
  return {x.mutable_data_ptr<T>(), x.size(0) > 1 ? x.stride(0) : x.size(1)};
}

// Calls f(begin, end) over rows; a thread gets at least about 16 K elements.
template <class F>
void parallel(int64_t rows, int64_t width, const F& f) {
  if (rows == 0) return;
  loom::parallel_for(0, rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)), f);
}

// Calls f with a value of the work type of `work`: f(float{}) or f(double{}). Tensors without memory (a dry run) are
// not computed on; all that a kernel allocates is therefore allocated outside of f.
template <class F>
void dispatch(const at::Tensor& work, const F& f) {
  if (work.is_meta()) return;
  LOOM_CHECK(work.is_cpu(), "a kernel of the CPU got a tensor on ", work.device().str());
  if (work.scalar_type() == at::kDouble) {
    f(double{});
  } else {
    f(float{});
  }
}

}  // namespace loom::rows
