// Trusts nothing in the header: sizes, ranges and their cover of the file are checked before anything is handed out.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/checkpoint/checksum.h"
#include "core/checkpoint/safetensors.h"

namespace loom {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr int kMaxDepth = 8;  // of the JSON: the format needs 3, and texts of deep values are made recursively

// As JSON, shortened.
std::string shown(const Json& value) {
  const std::string quoted = quote_text(value.dump());
  return quoted.substr(1, quoted.size() - 2);
}

uint64_t checked_bytes(const std::string& where, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  bool overflow = false;
  for (const int64_t extent : shape) overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
  LOOM_CHECK_USER(!overflow, where, "shape overflows 64 bits");
  return bytes;
}

TensorInfo parse_entry(const std::string& where, const Json& entry, uint64_t data_bytes) {
  LOOM_CHECK_USER(
      entry.is_object() && entry.contains("dtype") && entry.contains("shape") && entry.contains("data_offsets"), where,
      "expected dtype, shape and data_offsets");
  TensorInfo info;
  const Json& dtype = entry["dtype"];
  const std::optional<at::ScalarType> type =
      dtype.is_string() ? dtype_from_name(dtype.get<std::string>()) : std::nullopt;
  LOOM_CHECK_USER(type.has_value(), where, "unknown dtype ", shown(dtype),
                  "; expected one of F64 F32 BF16 F16 I64 I32 I16 I8 U8 BOOL");
  info.dtype = *type;
  const Json& shape = entry["shape"];
  LOOM_CHECK_USER(shape.is_array(), where, "shape is not a list");
  for (const Json& extent : shape) {
    LOOM_CHECK_USER(extent.is_number_unsigned() && extent.get<uint64_t>() <= uint64_t{INT64_MAX}, where, "shape holds ",
                    shown(extent), "; expected whole numbers from 0");
    info.shape.push_back(extent.get<int64_t>());
  }
  const Json& range = entry["data_offsets"];
  LOOM_CHECK_USER(
      range.is_array() && range.size() == 2 && range[0].is_number_unsigned() && range[1].is_number_unsigned(), where,
      "data_offsets is ", shown(range), "; expected [begin, end]");
  info.begin = range[0].get<uint64_t>();
  info.end = range[1].get<uint64_t>();
  LOOM_CHECK_USER(info.begin <= info.end && info.end <= data_bytes, where, "bytes ", info.begin, " to ", info.end,
                  " lie outside the data, which has ", data_bytes, " bytes; the file is truncated or damaged");
  const uint64_t expected = checked_bytes(where, info.shape, info.dtype);
  LOOM_CHECK_USER(info.end - info.begin == expected, where, "shape needs ", expected, " bytes, the header gives it ",
                  info.end - info.begin);
  return info;
}

}  // namespace

struct SafetensorsReader::Mapping {
  ~Mapping() {
    if (data != nullptr) ::munmap(data, size);
  }
  void* data = nullptr;
  size_t size = 0;
};

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), mapping_(std::make_shared<Mapping>()) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    if (error == ENOENT) throw UserError(path + ": no such file");
    throw_file_error("open", path, error);
  }
  struct stat info {};
  int error = ::fstat(descriptor, &info) == 0 ? 0 : errno;
  const bool regular = error == 0 && S_ISREG(info.st_mode);
  if (regular && info.st_size >= 8) {
    mapping_->size = static_cast<size_t>(info.st_size);
    // Private and writable: a tensor that someone writes to changes in memory only.
    void* data = ::mmap(nullptr, mapping_->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    if (data == MAP_FAILED) {
      error = errno;
    } else {
      mapping_->data = data;
    }
  }
  ::close(descriptor);
  if (error != 0) throw_file_error("map", path, error);
  LOOM_CHECK_USER(regular, path, ": is not a file; expected a safetensors file");
  LOOM_CHECK_USER(mapping_->data != nullptr, path, ": truncated safetensors file: ", info.st_size,
                  " bytes, expected at least 8");

  const unsigned char* bytes = static_cast<const unsigned char*>(mapping_->data);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | bytes[i];
  LOOM_CHECK_USER(length <= kMaxHeader, path, ": not a safetensors file: header of ", length,
                  " bytes, expected at most ", kMaxHeader);
  LOOM_CHECK_USER(length <= mapping_->size - 8, path, ": truncated safetensors file: ", mapping_->size,
                  " bytes, but its header alone needs ", length + 8);
  data_offset_ = 8 + length;
  parse_header({reinterpret_cast<const char*>(bytes) + 8, static_cast<size_t>(length)}, mapping_->size - data_offset_);
}

void SafetensorsReader::parse_header(std::string_view header, uint64_t data_bytes) {
  std::set<std::string> keys;
  std::string twice;
  const Json::parser_callback_t note_duplicates = [&](int depth, Json::parse_event_t event, Json& value) {
    LOOM_CHECK_USER(depth <= kMaxDepth, path_, ": the safetensors header is nested too deeply");
    if (event == Json::parse_event_t::key && depth == 1 && !keys.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  Json root;
  try {
    root = Json::parse(header.begin(), header.end(), note_duplicates);
  } catch (const Json::parse_error& problem) {
    throw UserError(concat(path_, ": the safetensors header is not JSON at its byte ", problem.byte));
  } catch (const Json::out_of_range&) {
    throw UserError(concat(path_, ": the safetensors header is not JSON: a number is out of range"));
  }
  LOOM_CHECK_USER(root.is_object(), path_, ": the safetensors header is not a JSON object");
  LOOM_CHECK_USER(twice.empty(), path_, ": tensor ", quote_text(twice), " appears twice in the header");

  std::vector<std::pair<uint64_t, std::pair<uint64_t, std::string>>> ranges;
  for (const auto& [key, entry] : root.items()) {
    if (key == "__metadata__") {
      LOOM_CHECK_USER(entry.is_object(), path_, ": __metadata__ is not a map");
      for (const auto& [name, text] : entry.items()) {
        LOOM_CHECK_USER(text.is_string(), path_, ": __metadata__ entry ", quote_text(name), " is not a string");
        metadata_[name] = text.get<std::string>();
      }
      continue;
    }
    const TensorInfo info = parse_entry(concat(path_, ": tensor ", quote_text(key), ": "), entry, data_bytes);
    ranges.push_back({info.begin, {info.end, key}});
    tensors_.emplace(key, info);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [begin, rest] : ranges) {
    LOOM_CHECK_USER(begin >= covered, path_, ": tensor ", quote_text(rest.second), ": overlaps the one before it");
    LOOM_CHECK_USER(begin == covered, path_, ": a hole of ", begin - covered, " bytes before tensor ",
                    quote_text(rest.second), "; expected none");
    covered = rest.first;
  }
  LOOM_CHECK_USER(covered == data_bytes, path_, ": ", data_bytes, " bytes of data, expected ", covered,
                  " by the header");
}

WrittenFile scan_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    if (error == ENOENT) throw UserError(path + ": no such file");
    throw_file_error("open", path, error);
  }
  std::vector<unsigned char> buffer(size_t{1} << 20);
  WrittenFile out;
  ssize_t got = 0;
  while ((got = ::read(descriptor, buffer.data(), buffer.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    out.crc32 = extend_crc32(out.crc32, buffer.data(), static_cast<size_t>(got));
    out.bytes += got;
  }
  const int error = got < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0) throw_file_error("read", path, error);
  return out;
}

void SafetensorsReader::forget(const Tensor& tensor) const {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t base = reinterpret_cast<uintptr_t>(mapping_->data);
  if (begin < base || begin + tensor.nbytes() > base + mapping_->size) return;  // a copy
  const uintptr_t from = (begin + kPage - 1) / kPage * kPage, to = (begin + tensor.nbytes()) / kPage * kPage;
  if (to > from) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

int64_t SafetensorsReader::bytes() const { return static_cast<int64_t>(mapping_->size); }

uint32_t SafetensorsReader::crc32() const { return extend_crc32(0, mapping_->data, mapping_->size); }

Tensor SafetensorsReader::tensor(const std::string& key) const {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, info] : tensors_) names.push_back(name);
    throw UserError(concat(path_, ": no tensor ", quote_text(key), did_you_mean(key, names)));
  }
  const TensorInfo& info = found->second;
  const at::TensorOptions options = at::TensorOptions().dtype(info.dtype);
  if (info.begin == info.end) return at::empty(info.shape, options);
  char* data = static_cast<char*>(mapping_->data) + data_offset_ + info.begin;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % c10::elementSize(info.dtype) == 0;
  if (!aligned) {  // files of other writers
    Tensor copy = at::empty(info.shape, options);
    std::copy(data, data + (info.end - info.begin), static_cast<char*>(copy.mutable_data_ptr()));
    return copy;
  }
  const std::shared_ptr<Mapping> mapping = mapping_;
  return at::from_blob(
      data, info.shape, [mapping](void*) {}, options);
}

}  // namespace loom
