#pragma once
// Packed attention on CPU over kernels/attention_*: division into tasks and threads. Arguments are checked by
// varlen_attention. Tensors without memory allocate the same and compute nothing.
#include <vector>

#include "core/nn/varlen_attention.h"

namespace loom {

VarlenResult attention_forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const std::vector<AttentionRange>& ranges, const VarlenShape& shape);

// Into tensors that the caller made, in the dtype that the kernels work in; columns are dense, rows may lie apart.
void attention_backward_cpu(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                            const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                            const VarlenShape& shape, const VarlenGradients& into);

}  // namespace loom
