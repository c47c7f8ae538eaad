#pragma once
// Packed attention as a composition of ATen's operations, range by range: any device and dtype.
#include <vector>

#include "core/nn/varlen_attention.h"

namespace loom {

// Differentiable by autograd when it records; `lse`, which has no gradient, is made when it is asked for.
Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                          const VarlenShape& shape, Tensor* lse = nullptr);

VarlenGradients attention_backward_composed(const Tensor& grad_output, const Tensor& q, const Tensor& k,
                                            const Tensor& v, const VarlenResult& result,
                                            const std::vector<AttentionRange>& ranges, const VarlenShape& shape);

}  // namespace loom
