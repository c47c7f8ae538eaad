#pragma once
// Tables of learned rows: by token, and by position in a grid.
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/declare.h"

namespace loom {

class UnitContext;

class Embedding {
 public:
  Embedding(const Declarer& d, int64_t rows, int64_t width, Init init = Init::normal(0.02));
  Tensor operator()(const Tensor& ids_T, UnitContext& ctx) const;  // int64 [T] -> [T, width]
  Param weight() const { return weight_; }                         // for a tied head

 private:
  Param weight_;
};

// Adds a learned row per position. Positions have one axis (an index into the flattened grid) or one per axis of the
// grid.
class PositionEmbedding {
 public:
  PositionEmbedding(const Declarer& d, std::vector<int64_t> grid, int64_t width, std::string partition = "",
                    Init init = Init::normal(0.02));
  Tensor operator()(const Tensor& x_TW, UnitContext& ctx) const;

 private:
  std::vector<int64_t> grid_;
  std::string partition_;
  Param weight_;
};

}  // namespace loom
