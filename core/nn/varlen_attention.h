#pragma once
// Attention over packed rows: each (query range, key range, head) is computed alone, in a fixed order of operations, so
// a segment's result does not depend by one bit on what else lies in the pack. The log-sum-exp is kept for the backward
// (Dao 2022), probabilities are not.
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/tensor.h"

namespace loom {

// Query rows [q_begin, q_begin + q_rows) attend to key rows [k_begin, k_begin + k_rows). With `causal`, query i sees
// keys j <= i + (k_rows - q_rows) + later. `window` > 0 limits to the last `window` of these (with `causal`, counted
// also where the range has no such keys).
struct AttentionRange {
  int64_t q_begin = 0, q_rows = 0, k_begin = 0, k_rows = 0;
  int64_t later = 0;  // ranges of a split segment begin and end anywhere
};

struct VarlenShape {
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = false;
  double scale = 1;
  int64_t window = 0;
};

struct VarlenResult {
  Tensor output;  // [q rows, heads * head_dim]; rows outside all ranges, or without keys, are zero
  Tensor lse;     // [q rows, heads], log-sum-exp of the scaled scores; -inf without keys. Accumulation dtype
};

struct VarlenGradients {
  Tensor dq, dk, dv;
};

// Pairs (query, key) that see each other, over all ranges, for one head.
double attention_cells(const std::vector<AttentionRange>& ranges, bool causal, int64_t window);

// No autograd. q [q rows, heads * head_dim]; k, v [k rows, kv_heads * head_dim]; one dtype, columns dense.
VarlenResult varlen_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const std::vector<AttentionRange>& ranges, const VarlenShape& shape);
VarlenGradients varlen_attention_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                          const VarlenResult& result, const std::vector<AttentionRange>& ranges,
                                          const VarlenShape& shape);

// With autograd. When `kept` is given the forward is not computed again: its values are the result (recompute).
Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                        const VarlenShape& shape, const VarlenResult* kept, VarlenResult* computed);

// The same on CPU for q, k and v side by side in one matrix [rows, q | k | v] of float or double, which the operation
// takes for itself: `turn`, when there is one, changes q and k where they are. Its gradient is one matrix, too.
Tensor fused_attention(const Tensor& qkv, std::function<void(const Tensor& heads, bool inverse)> turn,
                       const std::vector<AttentionRange>& ranges, const VarlenShape& shape, const VarlenResult* kept,
                       VarlenResult* computed);

}  // namespace loom
