#pragma once
// Matrix products, straight into memory that exists: no autograd. On CPU in float and double by a blocked product of
// our own (kernels/), whose every element is a sum in an order that k alone fixes: it depends neither on the number of
// threads nor on how many rows or columns are computed beside it. Other devices and dtypes use ATen.
#include "core/base/tensor.h"

namespace loom {

// out = a b, or out += a b. a [m, k], b [k, n], out [m, n], of one dtype; rows or columns of a and b are dense (x.t()
// is as good as x), rows of out are.
void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate = false);

// out = a b + start; start is [m, n], or [n] for every row alike. It may be out itself.
void matmul_add_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& start);

// A new tensor.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace loom
