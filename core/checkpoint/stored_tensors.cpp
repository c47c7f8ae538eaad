// What is wanted and what is stored are boxes of global tensors; each stored box gives what it shares with the wanted
// one. Pages of a file that were read are given back at once, so that a checkpoint is never in memory twice.
#include "core/checkpoint/stored_tensors.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/checkpoint/box_view.h"
#include "core/checkpoint/folders.h"

namespace loom {

std::string type_and_shape(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  return concat(dtype_name(dtype), " ", at::IntArrayRef(shape));
}

StoredTensors::StoredTensors(std::string folder, Manifest manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)) {}

const SafetensorsReader& StoredTensors::reader(const std::string& file) {
  std::unique_ptr<SafetensorsReader>& reader = readers_[file];
  if (reader != nullptr) return *reader;
  const std::string damage = file_damage(folder_, file, manifest_.files.at(file));
  LOOM_CHECK_USER(damage.empty(), damage, "; the checkpoint is damaged, use an earlier one");
  reader = std::make_unique<SafetensorsReader>(folder_ + "/" + file);
  return *reader;
}

void StoredTensors::check(const std::string& name, const Box& box) {
  const StoredTensor& stored = manifest_.tensors.at(name);
  for (const StoredBox& source : stored.boxes) {
    if (intersect(source.box, box).empty()) continue;
    const SafetensorsReader& file = reader(source.file);
    const auto found = file.tensors().find(source.key);
    LOOM_CHECK_USER(found != file.tensors().end(), folder_, "/", source.file, ": no tensor '", source.key,
                    "', which the manifest places there");
    const TensorInfo& info = found->second;
    LOOM_CHECK_USER(info.dtype == stored.dtype && info.shape == source.box.size, folder_, "/", source.file,
                    ": tensor '", source.key, "' is ", type_and_shape(info.dtype, info.shape), "; the manifest says ",
                    type_and_shape(stored.dtype, source.box.size));
  }
}

int64_t StoredTensors::read(const std::string& name, const Box& box, const Tensor& to) {
  check(name, box);
  int64_t bytes = 0;
  for (const StoredBox& source : manifest_.tensors.at(name).boxes) {
    const Box common = intersect(source.box, box);
    if (common.empty()) continue;
    const SafetensorsReader& file = reader(source.file);
    const Tensor from = box_view(file.tensor(source.key), common, source.box);
    box_view(to, common, box).copy_(from);
    bytes += from.numel() * static_cast<int64_t>(from.element_size());
    if (from.is_contiguous()) file.forget(from);
  }
  return bytes;
}

}  // namespace loom
