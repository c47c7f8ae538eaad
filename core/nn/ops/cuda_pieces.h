#pragma once
// The pieces of a GPU. One file gives the table when Omniloom was built with CUDA (cuda_pieces.cpp), another one says
// that there is none (no_cuda_pieces.cpp); the linker decides.
#include <cstdint>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/varlen_attention.h"

namespace loom {

struct CudaPieces {
  // As varlen_attention_forward and _backward (varlen_attention.h), on CUDA tensors.
  VarlenResult (*attention_forward)(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const std::vector<AttentionRange>& ranges, const VarlenShape& shape);
  VarlenGradients (*attention_backward)(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                        const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                                        const VarlenShape& shape);
};

const CudaPieces* cuda_pieces();  // null = not built with CUDA

}  // namespace loom
