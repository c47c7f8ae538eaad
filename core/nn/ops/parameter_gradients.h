#pragma once
// The last step of a piece's backward: a parameter's gradient goes into its sink, where there is one that takes it, or
// is returned. Float and double only take that way: sums of half types are kept in float by whoever adds them up.
#include <functional>

#include "core/base/tensor.h"
#include "core/nn/gradient_sink.h"

namespace loom {

// Rows dense and apart, or columns: what a product can read.
Tensor readable(const Tensor& x);

// Calls write(sum, fresh) on the sink's memory, or on new memory when there is none or it has another dtype. Returns
// what autograd is to have, undefined when the sink has it.
Tensor gradient_into(GradientSink* sink, at::IntArrayRef shape, const at::TensorOptions& options,
                     const std::function<void(const Tensor& sum, bool fresh)>& write);

// dy' x, of dy [T, out] and x [T, in].
Tensor product_gradient(GradientSink* sink, const Tensor& dy, const Tensor& x);

// The sum over rows of dy [T, out]; for a vector.
Tensor column_gradient(GradientSink* sink, const Tensor& dy);

// The sum of rows [T, width] by the row of a table that each came from.
Tensor table_gradient(GradientSink* sink, const Tensor& rows, const Tensor& ids, int64_t table_rows);

}  // namespace loom
