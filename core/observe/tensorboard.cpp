// Record: u64 length, masked CRC of the length, payload, masked CRC of the payload. Payload: protobuf Event. Fields are
// written in the order of their numbers, so the bytes equal those of a protobuf library.
#include "core/observe/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/observe/process.h"

namespace loom {
namespace {

constexpr const char* kPrefix = "events.out.tfevents.";

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}

template <class Integer>
void put_little_endian(std::string& out, Integer value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<uint64_t>(field * 8 + wire_type));
}

void put_integer(std::string& out, int field, int64_t value) {
  put_key(out, field, 0);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_double(std::string& out, int field, double value) {
  put_key(out, field, 1);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  put_little_endian(out, bits);
}

void put_float(std::string& out, int field, float value) {
  put_key(out, field, 5);
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  put_little_endian(out, bits);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// Field numbers of the messages in use.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace value {
constexpr int kTag = 1, kSimple = 2, kImage = 4, kTensor = 8, kMetadata = 9;
}

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Readers take the files of a folder in the order of their names: a later run must sort behind an earlier one, also
// within one second and when the clock went back.
long long seconds_behind(const std::string& folder, double now) {
  long long seconds = static_cast<long long>(now);
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    long long theirs = 0;
    if (name.rfind(kPrefix, 0) != 0 || std::sscanf(name.c_str() + std::strlen(kPrefix), "%lld", &theirs) != 1) continue;
    if (theirs >= seconds && theirs < 9'999'999'999) seconds = theirs + 1;
  }
  return seconds;
}

// Readers refuse a message whose strings are no UTF-8.
std::string readable(const std::string& text) {
  std::string out = text;
  if (valid_utf8(text)) return out;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return out;
}

// A PNG's IHDR holds them at fixed places.
int64_t png_number(const std::string& png, size_t at) {
  int64_t out = 0;
  for (size_t i = 0; i < 4 && at + i < png.size(); ++i) out = out << 8 | static_cast<unsigned char>(png[at + i]);
  return out;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string event_record(std::string_view payload) {
  std::string out;
  put_little_endian(out, static_cast<uint64_t>(payload.size()));
  put_little_endian(out, masked_crc32c(out));
  out += payload;
  put_little_endian(out, masked_crc32c(payload));
  return out;
}

std::string tensorboard_tag(const std::string& metric) {
  static const std::map<std::string, std::string> other_groups = {
      {"exact_match", "eval/exact_match"},   {"token_accuracy", "eval/token_accuracy"},
      {"data_seconds", "train/data_wait"},   {"rss", "memory/rss"},
      {"tensor_peak", "memory/tensor_peak"}, {"rss_peak", "memory/rss_peak"},
      {"skipped", "data/skipped"},           {"left_out", "data/left_out"},
      {"packed_fill", "data/packed_fill"}};
  const auto found = other_groups.find(metric);
  if (found != other_groups.end()) return found->second;
  if (metric.rfind("time/", 0) == 0) return metric;
  if (metric.rfind("eval_", 0) == 0) return "eval/" + metric.substr(5);
  return "train/" + metric;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t restart_at, std::function<double()> clock)
    : clock_(clock ? std::move(clock) : system_seconds) {
  static std::atomic<unsigned> counter{0};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%010lld", seconds_behind(folder, clock_()));
  path_ = concat(folder, "/", kPrefix, seconds, ".", host_name(), ".", ::getpid(), ".", counter++);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_file_error("create", path_, errno);
  add_event(0, event::kFileVersion, "brain.Event:2");
  if (restart_at > 0) {
    std::string start;
    put_integer(start, 1, 1);  // SessionLog.status = START
    add_event(restart_at, event::kSessionLog, start);
  }
  try {
    flush();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TensorBoardWriter::~TensorBoardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TensorBoardWriter::add_event(int64_t step, int field, std::string_view message) {
  std::string out;
  put_double(out, event::kWallTime, clock_());
  if (step != 0) put_integer(out, event::kStep, step);
  put_bytes(out, field, message);
  waiting_ += event_record(out);
}

void TensorBoardWriter::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  if (values.empty()) return;
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string one;
    put_bytes(one, value::kTag, tag);
    put_float(one, value::kSimple, static_cast<float>(number));
    put_bytes(summary, 1, one);
  }
  add_event(step, event::kSummary, summary);
}

void TensorBoardWriter::metrics(const MetricsLine& line) {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, number] : line.values) {
    if (!std::holds_alternative<std::string>(number)) values.emplace_back(tensorboard_tag(name), line.number(name, 0));
  }
  scalars(line.step, values);
}

void TensorBoardWriter::text(int64_t step, const std::string& tag, const std::string& markdown) {
  std::string tensor, plugin, metadata, one, summary;
  put_integer(tensor, 1, 7);  // DT_STRING
  put_bytes(tensor, 2, "");   // no dimensions: TensorBoard shows lists as tables
  put_bytes(tensor, 8, readable(markdown));
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_integer(metadata, 4, 2);  // DATA_CLASS_TENSOR
  put_bytes(one, value::kTag, tag);
  put_bytes(one, value::kTensor, tensor);
  put_bytes(one, value::kMetadata, metadata);
  put_bytes(summary, 1, one);
  add_event(step, event::kSummary, summary);
}

void TensorBoardWriter::picture(int64_t step, const std::string& tag, const std::string& png,
                                const std::string& description) {
  std::string image, plugin, metadata, one, summary;
  put_integer(image, 1, png_number(png, 20));
  put_integer(image, 2, png_number(png, 16));
  put_integer(image, 3, 3);  // colour space: RGB
  put_bytes(image, 4, png);
  put_bytes(plugin, 1, "images");
  put_bytes(metadata, 1, plugin);
  put_bytes(metadata, 3, readable(description));
  put_bytes(one, value::kTag, tag);
  put_bytes(one, value::kImage, image);
  put_bytes(one, value::kMetadata, metadata);
  put_bytes(summary, 1, one);
  add_event(step, event::kSummary, summary);
}

void TensorBoardWriter::flush() {
  if (waiting_.empty()) return;
  try {
    write_fully(descriptor_, waiting_, path_);
  } catch (const Error&) {
    waiting_.clear();
    if (::ftruncate(descriptor_, size_) != 0) throw;  // readers ignore a torn record at the end
    throw;
  }
  size_ += static_cast<int64_t>(waiting_.size());
  waiting_.clear();
}

}  // namespace loom
