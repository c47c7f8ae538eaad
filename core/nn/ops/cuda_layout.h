#pragma once
// Ranges of rows as the GPU's attention takes them: lists of offsets into dense rows, on the device. Rows that do not
// lie densely and in order are gathered first. A queue of layouts is kept: all layers of a step ask for the same few.
#include <memory>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/varlen_attention.h"

namespace loom {

struct CudaLayout {
  // Without queries that see nothing, and without keys that nobody sees at an end of a range.
  std::vector<AttentionRange> ranges;
  int64_t q_total = 0, k_total = 0;      // rows in ranges
  int64_t longest_q = 0, longest_k = 0;  // of a range
  Tensor q_offsets, k_offsets;           // int32 [ranges + 1]
  Tensor q_rows, k_rows;                 // int64: where the dense rows lie; undefined when all rows are dense already
  Tensor padded_rows;                    // int64 [q_total]: row i of range r as row r * padded_q + i
  int64_t padded_q = 0;                  // longest_q in whole blocks of 32

  // Rows of a tensor in the order of the ranges, and back: rows outside of all ranges are `empty`; a row that several
  // ranges have gets their sum.
  static Tensor gathered(const Tensor& x, const Tensor& rows);
  static Tensor placed(const Tensor& dense, const Tensor& rows, int64_t all, double empty);
  static Tensor summed(const Tensor& dense, const Tensor& rows, int64_t all);
};

// Of tensors of q_size and k_size rows.
std::shared_ptr<const CudaLayout> cuda_layout(const std::vector<AttentionRange>& ranges, const VarlenShape& shape,
                                              int64_t q_size, int64_t k_size, c10::Device device);

}  // namespace loom
