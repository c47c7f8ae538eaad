#include "core/checkpoint/verify.h"

#include <map>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/checkpoint/folders.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/stored_tensors.h"

namespace loom {
namespace {

// The first thing that is wrong with a file.
std::string damage_of(const std::string& folder, const std::string& name, const StoredFile& file,
                      const Manifest& manifest) {
  const std::string path = folder + "/" + name;
  const std::string damage = file_damage(folder, name, file);
  if (!damage.empty()) return damage;
  if (scan_file(path).crc32 != file.crc32) return path + ": altered: its checksum differs from the manifest's";
  // The checksum is right, so what follows says that the manifest is of something else.
  const SafetensorsReader reader(path);
  for (const auto& [tensor, stored] : manifest.tensors) {
    for (const StoredBox& box : stored.boxes) {
      if (box.file != name) continue;
      const auto found = reader.tensors().find(box.key);
      if (found == reader.tensors().end()) return concat(path, ": no tensor '", box.key, "', which the manifest names");
      if (found->second.dtype != stored.dtype || found->second.shape != box.box.size) {
        return concat(path, ": tensor '", box.key, "' is ", type_and_shape(found->second.dtype, found->second.shape),
                      "; the manifest says ", type_and_shape(stored.dtype, box.box.size));
      }
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> verify_checkpoint(const std::string& folder) {
  if (!is_file(folder + "/" + kManifestName)) return {concat(folder, "/", kManifestName, ": missing")};
  std::vector<std::string> out;
  try {
    const Manifest manifest = read_manifest(folder);  // whose boxes cover every tensor once
    for (const auto& [name, file] : manifest.files) {
      std::string damage;
      try {
        damage = damage_of(folder, name, file, manifest);
      } catch (const Error& problem) {
        damage = problem.what();
      }
      if (!damage.empty()) out.push_back(damage);
    }
  } catch (const UserError& problem) {
    out.push_back(problem.what());
  }
  return out;
}

}  // namespace loom
