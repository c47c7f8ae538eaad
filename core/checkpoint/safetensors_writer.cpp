// Streams header and tensors to the file, counting the checksum on the way, so that nothing is read back.
#include <fcntl.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/checkpoint/checksum.h"
#include "core/checkpoint/safetensors.h"

namespace loom {
namespace {

constexpr size_t kChunk = size_t{1} << 20;  // checksum and write while it is in cache

struct DtypeRow {
  at::ScalarType type;
  const char* name;
};

constexpr DtypeRow kDtypes[] = {{at::kDouble, "F64"},    {at::kLong, "I64"}, {at::kFloat, "F32"}, {at::kInt, "I32"},
                                {at::kBFloat16, "BF16"}, {at::kHalf, "F16"}, {at::kShort, "I16"}, {at::kByte, "U8"},
                                {at::kChar, "I8"},       {at::kBool, "BOOL"}};

class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw_file_error("create", path, errno);
  }
  ~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view chunk = bytes.substr(0, kChunk);
      done_.crc32 = extend_crc32(done_.crc32, chunk.data(), chunk.size());
      write_fully(descriptor_, chunk, path_);
      done_.bytes += static_cast<int64_t>(chunk.size());
      bytes.remove_prefix(chunk.size());
    }
  }

  WrittenFile finish() {
    if (::fsync(descriptor_) != 0) throw_file_error("write", path_, errno);
    const int result = ::close(descriptor_);
    descriptor_ = -1;
    if (result != 0) throw_file_error("write", path_, errno);
    return done_;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  WrittenFile done_;
};

}  // namespace

const char* dtype_name(at::ScalarType type) {
  for (const DtypeRow& row : kDtypes) {
    if (row.type == type) return row.name;
  }
  throw InternalError(concat("safetensors has no dtype for ", c10::toString(type)));
}

std::optional<at::ScalarType> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

WrittenFile write_safetensors(const std::string& path, const std::vector<KeyedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const KeyedTensor*> order;
  for (const KeyedTensor& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const KeyedTensor* a, const KeyedTensor* b) {
    const size_t size_a = a->tensor.element_size(), size_b = b->tensor.element_size();
    return size_a != size_b ? size_a > size_b : a->key < b->key;
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const KeyedTensor* entry : order) {
    LOOM_CHECK(!header.contains(entry->key), "key '", entry->key, "' twice in ", path);
    const uint64_t bytes = static_cast<uint64_t>(entry->tensor.numel()) * entry->tensor.element_size();
    header[entry->key] = {{"dtype", dtype_name(entry->tensor.scalar_type())},
                          {"shape", entry->tensor.sizes().vec()},
                          {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');

  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>((static_cast<uint64_t>(text.size()) >> (8 * i)) & 0xFF);
  OutputFile file(path);
  file.write({length, sizeof length});
  file.write(text);
  for (const KeyedTensor* entry : order) {
    const Tensor data = entry->tensor.detach().to(at::kCPU).contiguous();
    file.write({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  return file.finish();
}

}  // namespace loom
