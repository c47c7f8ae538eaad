#pragma once
// The tensors of one checkpoint folder, whichever files their boxes lie in.
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/part.h"
#include "core/checkpoint/safetensors.h"

namespace loom {

class StoredTensors {
 public:
  StoredTensors(std::string folder, Manifest manifest);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // UserError unless the files that hold parts of the box are what the manifest says.
  void check(const std::string& name, const Box& box);
  // Fills `to`, which is that box of the tensor, and returns the bytes read.
  int64_t read(const std::string& name, const Box& box, const Tensor& to);

 private:
  const SafetensorsReader& reader(const std::string& file);

  std::string folder_;
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> readers_;
};

// "F32 [4, 8]", for messages.
std::string type_and_shape(at::ScalarType dtype, const std::vector<int64_t>& shape);

}  // namespace loom
