// First the ranks say what they hold (names, dtypes, boxes: a few lines of JSON), then rank 0 asks for nothing more:
// both sides walk through the same list in the same order.
#include "core/checkpoint/parts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/checkpoint/box_view.h"
#include "core/checkpoint/safetensors.h"

namespace loom {
namespace {

using Json = nlohmann::json;

// A counted part that has elements, as its owner describes it.
struct Part {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  // of the global tensor
  Box box;
};

// A tensor that comes together on rank 0.
struct Whole {
  std::string name;
  Tensor tensor;
  std::vector<Box> boxes;
};

Part describe(const NamedTensor& tensor) {
  const bool whole = tensor.box.size.empty();
  Part part{tensor.name, tensor.tensor.scalar_type(), whole ? tensor.tensor.sizes().vec() : tensor.shape, tensor.box};
  if (whole) part.box = whole_box(part.shape);
  LOOM_CHECK(at::IntArrayRef(part.box.size) == tensor.tensor.sizes(), "tensor ", tensor.name, " of shape ",
             tensor.tensor.sizes(), " for box ", part.box.str());
  return part;
}

std::string to_text(const std::vector<Part>& parts) {
  Json out = Json::array();
  for (const Part& part : parts)
    out.push_back({part.name, dtype_name(part.dtype), part.shape, part.box.offset, part.box.size});
  return out.dump();
}

std::vector<Part> from_text(const std::string& text) {
  std::vector<Part> out;
  for (const Json& entry : Json::parse(text)) {
    out.push_back({entry.at(0).get<std::string>(),
                   dtype_from_name(entry.at(1).get<std::string>()).value(),
                   entry.at(2).get<std::vector<int64_t>>(),
                   {entry.at(3).get<std::vector<int64_t>>(), entry.at(4).get<std::vector<int64_t>>()}});
  }
  return out;
}

Tensor place_of(const Tensor& whole, const Box& box) { return box_view(whole, box, whole_box(whole.sizes().vec())); }

// The tensor that a part belongs to, found or begun. `mine` is the part itself when rank 0 holds it.
Whole& home_of(const Part& part, const Tensor& mine, std::vector<Whole>& wholes, std::map<std::string, size_t>& index) {
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

}  // namespace

void append_parts(const UnitBuffer& buffer, const Tensor& flat, const std::string& prefix,
                  std::vector<NamedTensor>& out) {
  for (const BufferEntry& param : buffer.params()) {
    bool held = false;
    for (const BufferEntry& entry : buffer.entries()) {
      if (entry.name != param.name) continue;
      held = true;
      const Tensor view = flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
      out.push_back({prefix + entry.name, view, entry.global_shape, entry.box, buffer.counted()});
    }
    if (held) continue;
    const std::vector<int64_t> nothing(param.shape.size(), 0);  // a scalar has no empty box: a copy that nobody reads
    out.push_back({prefix + param.name, at::empty(nothing, flat.options()), param.shape, {nothing, nothing}, false});
  }
}

std::vector<NamedTensor> gather_tensors(Communicator& comm, const std::vector<NamedTensor>& mine) {
  std::vector<Part> parts;
  std::vector<Tensor> tensors;
  for (const NamedTensor& tensor : mine) {
    if (!tensor.counted || (tensor.tensor.numel() == 0 && !tensor.box.size.empty())) continue;
    parts.push_back(describe(tensor));
    tensors.push_back(tensor.tensor.detach());
  }
  const RankGroup everyone = world_group(comm.world());
  if (comm.rank() != 0) {
    for (int rank = 1; rank < comm.world(); ++rank)
      comm.broadcast("checkpoint: parts", everyone, rank, rank == comm.rank() ? to_text(parts) : "");
    for (size_t i = 0; i < parts.size(); ++i) {
      if (tensors[i].numel() == 0) continue;
      comm.exchange("checkpoint: " + parts[i].name, {{0, tensors[i].contiguous()}}, {}).wait();
    }
    return {};
  }

  std::vector<std::vector<Part>> of_rank(static_cast<size_t>(comm.world()));
  for (int rank = 1; rank < comm.world(); ++rank)
    of_rank[static_cast<size_t>(rank)] = from_text(comm.broadcast("checkpoint: parts", everyone, rank, ""));
  std::vector<Whole> wholes;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Whole& whole = home_of(parts[i], tensors[i], wholes, index);
    if (!whole.tensor.is_same(tensors[i])) place_of(whole.tensor, parts[i].box).copy_(tensors[i]);
  }
  for (int rank = 1; rank < comm.world(); ++rank) {
    for (const Part& part : of_rank[static_cast<size_t>(rank)]) {
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

}  // namespace loom
