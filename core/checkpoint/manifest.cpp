// JSON with a format name and a version, so that a later program can say what it cannot read.
#include "core/checkpoint/manifest.h"

#include <ATen/ATen.h>

#include <cstdio>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/checkpoint/safetensors.h"

namespace loom {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "omniloom-checkpoint";
constexpr int64_t kVersion = 1;

std::string hex(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

StoredTensor parse_tensor(const std::string& where, const Json& entry, const std::map<std::string, StoredFile>& files) {
  StoredTensor out;
  const std::optional<at::ScalarType> dtype = dtype_from_name(entry.at("dtype").get<std::string>());
  LOOM_CHECK_USER(dtype.has_value(), where, "unknown dtype ", entry.at("dtype").dump());
  out.dtype = *dtype;
  out.shape = entry.at("shape").get<std::vector<int64_t>>();
  std::vector<Box> boxes;
  for (const Json& stored : entry.at("boxes")) {
    StoredBox box{stored.at("file").get<std::string>(),
                  stored.at("key").get<std::string>(),
                  {stored.at("offset").get<std::vector<int64_t>>(), stored.at("size").get<std::vector<int64_t>>()}};
    LOOM_CHECK_USER(box.box.offset.size() == out.shape.size() && box.box.size.size() == out.shape.size(), where,
                    "a box of ", box.box.size.size(), " dimensions in a tensor of ", out.shape.size());
    LOOM_CHECK_USER(files.count(box.file) > 0, where, "its file ", quote_text(box.file),
                    " is not in the list of files");
    boxes.push_back(box.box);
    out.boxes.push_back(std::move(box));
  }
  LOOM_CHECK_USER(tiles(boxes, whole_box(out.shape)), where, "its boxes do not cover the tensor exactly once");
  return out;
}

}  // namespace

std::string manifest_json(const Manifest& manifest) {
  Json root = {{"format", kFormat}, {"version", kVersion}, {"step", manifest.step}, {"world", manifest.world}};
  root["files"] = Json::object();
  for (const auto& [name, file] : manifest.files)
    root["files"][name] = {{"bytes", file.bytes}, {"crc32", hex(file.crc32)}};
  root["extra"] = Json::parse(manifest.extra);
  LOOM_CHECK(root["extra"].is_object(), "extra of a checkpoint must be a JSON object");
  Json& tensors = root["tensors"] = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    Json boxes = Json::array();
    for (const StoredBox& stored : tensor.boxes) {
      boxes.push_back(
          {{"file", stored.file}, {"key", stored.key}, {"offset", stored.box.offset}, {"size", stored.box.size}});
    }
    tensors[name] = {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"boxes", std::move(boxes)}};
  }
  return root.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    const Json root = Json::parse(text);
    LOOM_CHECK_USER(root.is_object() && root.value("format", "") == kFormat, path,
                    ": not a checkpoint manifest; expected format ", kFormat);
    const int64_t version = root.at("version").get<int64_t>();
    LOOM_CHECK_USER(version == kVersion, path, ": manifest version ", version, "; this program reads version ",
                    kVersion);
    Manifest out;
    out.step = root.at("step").get<int64_t>();
    out.world = root.value("world", 1);  // the first checkpoints were written by rank 0 alone
    for (const auto& [name, file] : root.at("files").items()) {
      // A name with a folder in it could point anywhere.
      LOOM_CHECK_USER(!name.empty() && name.find('/') == std::string::npos, path, ": file name ", quote_text(name),
                      " is not a plain name");
      const std::string crc = file.at("crc32").get<std::string>();
      LOOM_CHECK_USER(crc.size() == 8 && crc.find_first_not_of("0123456789abcdef") == std::string::npos, path,
                      ": crc32 ", quote_text(crc), " of ", name, "; expected 8 hexadecimal digits");
      out.files[name] = {file.at("bytes").get<int64_t>(), static_cast<uint32_t>(std::stoul(crc, nullptr, 16))};
    }
    for (const auto& [name, entry] : root.at("tensors").items()) {
      out.tensors[name] = parse_tensor(concat(path, ": tensor ", quote_text(name), ": "), entry, out.files);
    }
    LOOM_CHECK_USER(root.at("extra").is_object(), path, ": extra is not a map");
    out.extra = root.at("extra").dump();
    return out;
  } catch (const Json::exception& problem) {
    throw UserError(concat(path, ": damaged checkpoint manifest: ", quote_text(problem.what())));
  }
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  return parse_manifest(read_text(path), path);
}

}  // namespace loom
