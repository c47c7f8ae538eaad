#include "core/checkpoint/part.h"

#include <ATen/ATen.h>

#include <tuple>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/checkpoint/safetensors.h"

namespace loom {

int64_t TensorPart::bytes() const { return box.numel() * static_cast<int64_t>(c10::elementSize(dtype)); }

TensorPart part_of_tensor(const NamedTensor& tensor) {
  const bool whole = tensor.box.size.empty();
  TensorPart part{tensor.name, tensor.tensor.scalar_type(), whole ? tensor.tensor.sizes().vec() : tensor.shape,
                  tensor.box};
  if (whole) part.box = whole_box(part.shape);
  LOOM_CHECK(at::IntArrayRef(part.box.size) == tensor.tensor.sizes(), "tensor ", tensor.name, " of shape ",
             tensor.tensor.sizes(), " for box ", part.box.str());
  return part;
}

bool holds(const NamedTensor& tensor) { return tensor.held && (tensor.tensor.numel() > 0 || tensor.box.size.empty()); }

std::vector<TensorPart> parts_held(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorPart> out;
  for (const NamedTensor& tensor : tensors) {
    if (holds(tensor)) out.push_back(part_of_tensor(tensor));
  }
  return out;
}

bool comes_before(const TensorPart& a, const TensorPart& b) {
  return std::tie(a.name, a.box.offset, a.box.size) < std::tie(b.name, b.box.offset, b.box.size);
}

std::string parts_text(const std::vector<TensorPart>& parts) {
  nlohmann::json out = nlohmann::json::array();
  for (const TensorPart& part : parts)
    out.push_back({part.name, dtype_name(part.dtype), part.shape, part.box.offset, part.box.size});
  return out.dump();
}

std::vector<TensorPart> parse_parts(const std::string& text) {
  std::vector<TensorPart> out;
  for (const nlohmann::json& entry : nlohmann::json::parse(text)) {
    out.push_back({entry.at(0).get<std::string>(),
                   dtype_from_name(entry.at(1).get<std::string>()).value(),
                   entry.at(2).get<std::vector<int64_t>>(),
                   {entry.at(3).get<std::vector<int64_t>>(), entry.at(4).get<std::vector<int64_t>>()}});
  }
  return out;
}

}  // namespace loom
