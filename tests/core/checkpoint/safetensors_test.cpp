// The file format: what we write is valid by an independent parse of the bytes, and no malformed file passes the
// reader.
#include "core/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

using test::line_of;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

std::string raw_file(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::vector<KeyedTensor> one_of_each() {
  std::vector<KeyedTensor> out;
  const at::ScalarType types[] = {at::kBool, at::kByte,  at::kHalf,   at::kBFloat16, at::kInt,
                                  at::kLong, at::kFloat, at::kDouble, at::kShort,    at::kChar};
  int64_t rows = 1;
  for (const at::ScalarType type : types) {
    const Tensor values =
        at::arange(rows * 3, at::kLong).remainder(type == at::kBool ? 2 : 100).reshape({rows, 3}).to(type);
    out.push_back({std::string("t.") + dtype_name(type), values});
    ++rows;
  }
  out.push_back({"scalar", at::scalar_tensor(2.5, at::kDouble)});
  out.push_back({"empty", at::empty({0, 4}, at::kFloat)});
  out.push_back({"transposed", at::arange(6, at::kFloat).reshape({2, 3}).t()});
  return out;
}

TEST(Safetensors, RoundTripOfEveryDtype) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<KeyedTensor> tensors = one_of_each();
  const WrittenFile written = write_safetensors(path, tensors, {{"format", "pt"}});
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const KeyedTensor& entry : tensors) {
    const Tensor back = reader.tensor(entry.key);
    EXPECT_EQ(back.scalar_type(), entry.tensor.scalar_type()) << entry.key;
    EXPECT_TRUE(back.sizes() == entry.tensor.sizes()) << entry.key;
    EXPECT_TRUE(at::equal(back, entry.tensor)) << entry.key;
  }
  const std::string bytes = read_bytes(path);
  EXPECT_EQ(written.bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(reader.bytes(), written.bytes);
  EXPECT_EQ(written.crc32, ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  EXPECT_EQ(reader.crc32(), written.crc32);
}

TEST(Safetensors, BytesAreWhatTheFormatAsksFor) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, one_of_each());
  const std::string bytes = read_bytes(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 8, 0u);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(bytes[8], '{');
  std::map<uint64_t, uint64_t> ranges;
  uint64_t total = 0;
  for (const auto& [key, entry] : header.items()) {
    const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    EXPECT_EQ((8 + length + begin) % c10::elementSize(*dtype_from_name(entry["dtype"].get<std::string>())), 0u) << key;
    if (end > begin) ranges[begin] = end;
    total += end - begin;
  }
  uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, at);
    at = end;
  }
  EXPECT_EQ(8 + length + total, bytes.size());
  float value = 0;  // [[0, 3], [1, 4], [2, 5]] row by row
  std::memcpy(&value, bytes.data() + 8 + length + header["transposed"]["data_offsets"][0].get<uint64_t>() + 4, 4);
  EXPECT_EQ(value, 3.0f);
}

TEST(Safetensors, TensorOutlivesReaderAndWritingDoesNotReachTheFile) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, {{"x", at::ones({4}, at::kFloat)}});
  const std::string before = read_bytes(path);
  Tensor kept;
  {
    const SafetensorsReader reader(path);
    kept = reader.tensor("x");
  }
  kept.fill_(7);
  EXPECT_TRUE(at::equal(kept, at::full({4}, 7, at::kFloat)));
  EXPECT_EQ(read_bytes(path), before);
}

TEST(Safetensors, MisalignedTensorOfAnotherWriterIsReadable) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  std::string data(1, '\x05');
  const float values[2] = {1.5f, -2.0f};
  data.append(reinterpret_cast<const char*>(values), 8);
  write_bytes(path, raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                             data));
  const Tensor b = SafetensorsReader(path).tensor("b");
  EXPECT_EQ(b[0].item<float>(), 1.5f);
  EXPECT_EQ(b[1].item<float>(), -2.0f);
}

TEST(Safetensors, EveryDefectIsOneLineThatNamesTheFile) {
  const TempFolder folder;
  const std::string path = folder / "bad.safetensors";
  const std::string eight(8, '\0');
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  struct Case {
    std::string bytes, expected;
  };
  const Case cases[] = {
      {"abc", "truncated safetensors file: 3 bytes, expected at least 8"},
      {"", "0 bytes"},
      {raw_file(good, eight).substr(0, 20), "its header alone needs"},
      {raw_file(good, eight.substr(0, 7)), "bytes 0 to 8 lie outside the data, which has 7 bytes"},
      {raw_file(good, eight + "x"), "9 bytes of data, expected 8"},
      {std::string(16, '\xff'), "not a safetensors file"},
      {raw_file("{nonsense", ""), "not JSON at its byte 3"},
      {raw_file(R"({"a":1e999})", ""), "not JSON: a number is out of range"},
      {raw_file("{\"a\":{\"dtype\":\"F32\",\"shape\":" + std::string(5'000'000, '['), ""), "nested too deeply"},
      {raw_file("[1]", ""), "not a JSON object"},
      {raw_file(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", eight), "unknown dtype \"F31\""},
      {raw_file(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
       "shape needs 12 bytes, the header gives it 8"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight), "shape holds -2"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,8]}})", eight), "overflows"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight), "lie outside the data"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[2]}})", eight), "expected dtype, shape and data_offsets"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                eight),
       "overlaps"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
                eight),
       "a hole of 4 bytes"},
      {raw_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                eight),
       "appears twice"},
      {raw_file(R"({"__metadata__":{"a":1}})", ""), "is not a string"},
  };
  for (const Case& c : cases) {
    write_bytes(path, c.bytes);
    const std::string text = line_of<UserError>([&] { const SafetensorsReader reader(path); });
    EXPECT_HAS(text, path);
    EXPECT_HAS(text, c.expected);
  }
}

TEST(Safetensors, MissingFileAndUnknownKey) {
  const TempFolder folder;
  EXPECT_HAS(line_of<UserError>([&] { const SafetensorsReader reader(folder / "no.safetensors"); }), "no such file");
  EXPECT_HAS(line_of<UserError>([&] { const SafetensorsReader reader(folder.path()); }), "not a file");
  write_safetensors(folder / "a", {{"weight", at::ones({1})}});
  EXPECT_HAS(line_of<UserError>([&] { SafetensorsReader(folder / "a").tensor("wieght"); }), "did you mean 'weight'?");
  EXPECT_HAS(line_of<EnvironmentError>([&] { write_safetensors(folder / "no/such/a", {}); }), "no/such/a");
}

}  // namespace
}  // namespace loom
