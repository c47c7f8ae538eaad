#pragma once
// Matrix products, straight into memory that exists: no autograd. On CPU in float and double by a blocked product of
// our own (kernels/matmul_body.h), whose every element is a sum in an order that k alone fixes: it depends neither on
// the number of threads nor on how many rows or columns are computed beside it. Other devices and dtypes, and
// processors whose library is the faster one (see Products), use ATen, which promises less.
#include "core/base/tensor.h"

namespace loom {

// out = a b, or out += a b. a [m, k], b [k, n], out [m, n], of one dtype; rows or columns of a and b are dense (x.t()
// is as good as x), rows of out are. out shares no memory with a and b.
void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate = false);

// out = a b + start; start is [m, n], or [n] for every row alike. It may be out itself.
void matmul_add_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& start);

// A new tensor.
Tensor matmul(const Tensor& a, const Tensor& b);

// Whose product runs on CPU. At the start: what the environment variable OMNILOOM_MATMUL says (own, library), else a
// rule on the processor alone, never a measurement: two runs of one machine give the same bits.
enum class Products { own = 1, library };
Products products_in_use();
void use_products(Products products);

}  // namespace loom
