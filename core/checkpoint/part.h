#pragma once
// What a rank holds of a global tensor, in words that travel: name, type, shape and box, without the values.
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/mesh/box.h"

namespace loom {

// A tensor under its global name, or a part of it, which then says which.
struct NamedTensor {
  std::string name;
  Tensor tensor;
  std::vector<int64_t> shape{};  // of the global tensor; read only when box is set
  Box box{};                     // which part `tensor` is; no dimensions = the whole
  bool counted = true;           // of ranks with the same part, exactly one says so: for sums over ranks
  bool held = true;              // false: the rank has nothing of it and only knows the name
};

struct TensorPart {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  // of the global tensor
  Box box;

  int64_t bytes() const;
  bool operator==(const TensorPart&) const = default;
};

// InternalError when tensor and box differ in shape.
TensorPart part_of_tensor(const NamedTensor& tensor);
// Does the rank hold any element of it?
bool holds(const NamedTensor& tensor);
std::vector<TensorPart> parts_held(const std::vector<NamedTensor>& tensors);
bool comes_before(const TensorPart& a, const TensorPart& b);  // by name, then box

std::string parts_text(const std::vector<TensorPart>& parts);
std::vector<TensorPart> parse_parts(const std::string& text);

}  // namespace loom
