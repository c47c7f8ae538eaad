#pragma once
// Rotary position embedding in the half-split convention of HF files: the pair (j, j + head_dim / 2) of every head
// turns by position * theta^(-2 j / head_dim).
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/tensor.h"

namespace loom {

class UnitContext;

class Rotary {
 public:
  explicit Rotary(int64_t head_dim, double theta = 10000.0, std::string partition = "");
  // [T, heads * head_dim] -> the same shape; positions come from the partition.
  Tensor operator()(const Tensor& x, UnitContext& ctx) const;
  // For an operation that turns rows where they are, and their gradients back: x [T, heads * head_dim], columns dense,
  // of the dtype and device of `like`, on CPU; no autograd.
  std::function<void(const Tensor& x, bool inverse)> turner(const Tensor& like, UnitContext& ctx) const;

  struct Angles;  // of the rows of a pass

 private:
  Angles angles(const Tensor& like, UnitContext& ctx) const;

  struct Tables;  // cosines and sines by position; grown on demand, shared by copies
  int64_t head_dim_;
  std::string partition_;
  std::shared_ptr<Tables> tables_;
};

}  // namespace loom
