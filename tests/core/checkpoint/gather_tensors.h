#pragma once
// The whole tensors of which ranks hold parts, for tests that look at them. First the ranks say what they hold, then
// both sides walk through the same list in the same order.
#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/checkpoint/box_view.h"
#include "core/checkpoint/part.h"
#include "core/comm/texts.h"

namespace loom::test {

// A tensor that comes together on rank 0.
struct Whole {
  std::string name;
  Tensor tensor;
  std::vector<Box> boxes;
};

inline Tensor place_of(const Tensor& whole, const Box& box) {
  return box_view(whole, box, whole_box(whole.sizes().vec()));
}

// The tensor that a part belongs to, found or begun. `mine` is the part itself when rank 0 holds it.
inline Whole& home_of(const TensorPart& part, const Tensor& mine, std::vector<Whole>& wholes,
                      std::map<std::string, size_t>& index) {
  const auto [found, fresh] = index.emplace(part.name, wholes.size());
  if (fresh) {
    const bool all = mine.defined() && part.box == whole_box(part.shape);
    wholes.push_back({part.name, all ? mine : at::empty(part.shape, part.dtype), {}});
  }
  Whole& whole = wholes[found->second];
  LOOM_CHECK(whole.tensor.scalar_type() == part.dtype && whole.tensor.sizes() == at::IntArrayRef(part.shape), "tensor ",
             part.name, " is ", whole.tensor.sizes(), " on one rank and ", at::IntArrayRef(part.shape), " on another");
  whole.boxes.push_back(part.box);
  return whole;
}

// On rank 0, nothing elsewhere; all ranks call it. Each counted part is sent once, straight into its place where the
// place is contiguous; what rank 0 holds whole is not copied.
inline std::vector<NamedTensor> gather_tensors(Communicator& comm, const std::vector<NamedTensor>& mine) {
  std::vector<TensorPart> parts;
  std::vector<Tensor> tensors;
  for (const NamedTensor& tensor : mine) {
    if (!tensor.counted || !holds(tensor)) continue;
    parts.push_back(part_of_tensor(tensor));
    tensors.push_back(tensor.tensor.detach());
  }
  const std::vector<std::string> told = exchange_texts(comm, "checkpoint: parts", parts_text(parts));
  if (comm.rank() != 0) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (tensors[i].numel() == 0) continue;
      comm.exchange("checkpoint: " + parts[i].name, {{0, tensors[i].contiguous()}}, {}).wait();
    }
    return {};
  }

  std::vector<Whole> wholes;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Whole& whole = home_of(parts[i], tensors[i], wholes, index);
    if (!whole.tensor.is_same(tensors[i])) place_of(whole.tensor, parts[i].box).copy_(tensors[i]);
  }
  for (int rank = 1; rank < comm.world(); ++rank) {
    for (const TensorPart& part : parse_parts(told[static_cast<size_t>(rank)])) {
      const Tensor place = place_of(home_of(part, {}, wholes, index).tensor, part.box);
      if (place.numel() == 0) continue;
      const bool straight = place.is_contiguous();
      const Tensor arrived = straight ? place : at::empty(part.box.size, part.dtype);
      comm.exchange("checkpoint: " + part.name, {}, {{rank, arrived}}).wait();
      if (!straight) place.copy_(arrived);
    }
  }
  std::vector<NamedTensor> out;
  for (Whole& whole : wholes) {
    LOOM_CHECK(tiles(whole.boxes, whole_box(whole.tensor.sizes().vec())), "the ranks do not hold ", whole.name,
               " exactly once");
    out.push_back({whole.name, std::move(whole.tensor)});
  }
  return out;
}

}  // namespace loom::test
