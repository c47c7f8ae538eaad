#pragma once
// What a checkpoint folder holds, as data: every tensor by its global name, shape and the boxes that files hold of it;
// every file by size and checksum. It is the last file written, so its presence means that the rest is complete.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/mesh/box.h"

namespace loom {

struct StoredBox {
  std::string file;
  std::string key;  // within the file
  Box box;          // within the global tensor
};

struct StoredTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  // global
  std::vector<StoredBox> boxes;
};

struct StoredFile {
  int64_t bytes = 0;
  uint32_t crc32 = 0;
};

struct Manifest {
  int64_t step = 0;
  int world = 1;  // ranks that saved it, for people
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, StoredFile> files;
  std::string extra = "{}";  // a JSON object: loader, schedule, counters, metrics
};

inline constexpr const char* kManifestName = "manifest.json";

std::string manifest_json(const Manifest& manifest);
// UserError naming `path` when the text is not a manifest that this program can read.
Manifest parse_manifest(const std::string& text, const std::string& path);
// Reads folder/manifest.json.
Manifest read_manifest(const std::string& folder);

}  // namespace loom
