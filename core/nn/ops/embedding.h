#pragma once
// Rows of a table. The gradient is added to the table's in place, row by row in order, without a table of zeros.
#include "core/base/tensor.h"
#include "core/nn/gradient_sink.h"

namespace loom {

// ids int64 [T], table [N, width], more [T, width] or undefined -> table[ids] (+ more).
Tensor embedding(const Weight& table, const Tensor& ids_T, const Tensor& more_TW = {});

}  // namespace loom
