#pragma once
// Runs attention tiles: chunks travel while the ones before are worked on, partial results are merged by their
// log-sum-exps. Sums are added in an order that depends on the segment's pieces alone.
#include <string_view>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/attention_tiles.h"
#include "core/nn/varlen_attention.h"

namespace loom {

class Communicator;

// No autograd. Writes the rows of `result` (output and log-sum-exp) that belong to the tiles; q, k, v are this rank's
// rows. All members of a tile call it with all the tiles that they share, in the same order.
void tile_attention_forward(Communicator& comm, std::string_view what, const Tensor& q, const Tensor& k,
                            const Tensor& v, const std::vector<AttentionTile>& tiles, const VarlenShape& shape,
                            VarlenResult& result);
// `result` is the whole one. Writes the rows of dq and adds to those of dk and dv.
void tile_attention_backward(Communicator& comm, std::string_view what, const Tensor& grad_output, const Tensor& q,
                             const Tensor& k, const Tensor& v, const std::vector<AttentionTile>& tiles,
                             const VarlenShape& shape, const VarlenResult& result, VarlenGradients& into);

}  // namespace loom
