#pragma once
// The safetensors file format: 8 bytes of header length, a JSON header, then the tensors one after another without
// holes. Written as a stream (a checkpoint never exists twice in memory) and read through a mapping (only the slices
// that are wanted are touched). Every file is validated as a whole before the first tensor is handed out; a defect is
// one line naming file and expectation.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"

namespace loom {

// "F32" and so on; InternalError for a type that the format does not have.
const char* dtype_name(at::ScalarType type);
std::optional<at::ScalarType> dtype_from_name(std::string_view name);

struct KeyedTensor {
  std::string key;
  Tensor tensor;
};

struct WrittenFile {
  int64_t bytes = 0;
  uint32_t crc32 = 0;  // of the whole file, as zlib counts it
};

// Writes and fsyncs a new file (or replaces one in place). Tensors are ordered by element size, then key, so that each
// one is aligned to its elements. EnvironmentError when the disk is full or the path cannot be written.
WrittenFile write_safetensors(const std::string& path, const std::vector<KeyedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// Reads an existing file of any kind from end to end, without keeping it in memory. UserError when it is missing.
WrittenFile scan_file(const std::string& path);

struct TensorInfo {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // in bytes, from the end of the header
  uint64_t end = 0;
};

class SafetensorsReader {
 public:
  // Maps the file and validates its header. UserError naming the file when it is missing, truncated or malformed.
  explicit SafetensorsReader(const std::string& path);

  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  int64_t bytes() const;
  uint32_t crc32() const;  // of the whole file; reads all of it
  // Shares the mapping, which lives as long as the tensor; writing to it changes the copy in memory, never the file.
  Tensor tensor(const std::string& key) const;
  // The pages of a tensor of this mapping may go: they are read from the file again when they are wanted again. Only
  // for tensors that nobody has written to.
  void forget(const Tensor& tensor) const;

 private:
  struct Mapping;
  void parse_header(std::string_view header, uint64_t data_bytes);

  std::string path_;
  std::shared_ptr<Mapping> mapping_;
  uint64_t data_offset_ = 0;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace loom
