// Reading is general from the start: what is wanted and what is stored are boxes of global tensors, and each stored box
// gives what it shares with the wanted one. Everything is checked before the first byte of a tensor changes.
#include <ATen/ATen.h>

#include <map>
#include <memory>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/checkpoint/box_view.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"

namespace loom {
namespace {

using Readers = std::map<std::string, std::unique_ptr<SafetensorsReader>>;

std::string describe(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  return concat(dtype_name(dtype), " ", at::IntArrayRef(shape));
}

std::string and_more(size_t others) { return others == 0 ? "" : concat(" (and ", others, " more)"); }

void check_names(const std::string& folder, const Manifest& manifest, const std::vector<NamedTensor>& tensors,
                 Unasked unasked) {
  std::vector<std::string> stored, wanted, missing, unknown;
  std::map<std::string, bool> asked;  // as a part?
  for (const auto& [name, tensor] : manifest.tensors) stored.push_back(name);
  for (const NamedTensor& tensor : tensors) {
    const bool part = !tensor.box.size.empty();
    const auto [first, fresh] = asked.emplace(tensor.name, part);
    LOOM_CHECK(fresh || (part && first->second), "tensor ", tensor.name, " asked for twice");
    if (!fresh) continue;
    wanted.push_back(tensor.name);
    if (manifest.tensors.count(tensor.name) == 0) missing.push_back(tensor.name);
  }
  for (const std::string& name : stored) {
    if (asked.count(name) == 0) unknown.push_back(name);
  }
  LOOM_CHECK_USER(missing.empty(), folder, ": has no tensor '", missing.front(), "', which this model needs",
                  and_more(missing.size() - 1), did_you_mean(missing.front(), unknown.empty() ? stored : unknown));
  LOOM_CHECK_USER(unasked == Unasked::ignore || unknown.empty(), folder, ": holds tensor '", unknown.front(),
                  "', which this model does not have", and_more(unknown.size() - 1),
                  did_you_mean(unknown.front(), wanted));
}

const SafetensorsReader& reader_of(const std::string& folder, const Manifest& manifest, const std::string& file,
                                   bool verify, Readers& readers) {
  std::unique_ptr<SafetensorsReader>& reader = readers[file];
  if (reader != nullptr) return *reader;
  const std::string path = folder + "/" + file;
  const StoredFile& expected = manifest.files.at(file);
  std::unique_ptr<SafetensorsReader> opened = std::make_unique<SafetensorsReader>(path);
  LOOM_CHECK_USER(opened->bytes() == expected.bytes, path, ": ", opened->bytes(), " bytes, expected ", expected.bytes,
                  " by the manifest");
  LOOM_CHECK_USER(!verify || opened->crc32() == expected.crc32, path,
                  ": damaged: its checksum differs from the manifest's; use an earlier checkpoint");
  reader = std::move(opened);
  return *reader;
}

struct Copy {
  Tensor to, from;
};

}  // namespace

Manifest load_checkpoint(const std::string& folder, const std::vector<NamedTensor>& tensors,
                         const LoadOptions& options) {
  LOOM_CHECK_USER(is_folder(folder), folder, ": no such checkpoint folder");
  const std::string damage = checkpoint_damage(folder);
  LOOM_CHECK_USER(damage.empty(), damage, "; the checkpoint is damaged, use an earlier one");
  Manifest manifest = read_manifest(folder);
  check_names(folder, manifest, tensors, options.unasked);

  Readers readers;
  std::vector<Copy> copies;
  for (const NamedTensor& wanted : tensors) {
    const StoredTensor& stored = manifest.tensors.at(wanted.name);
    const bool whole = wanted.box.size.empty();
    const std::vector<int64_t> shape = whole ? wanted.tensor.sizes().vec() : wanted.shape;
    LOOM_CHECK_USER(stored.dtype == wanted.tensor.scalar_type() && stored.shape == shape, folder, ": tensor '",
                    wanted.name, "' is ", describe(stored.dtype, stored.shape), "; this model has ",
                    describe(wanted.tensor.scalar_type(), shape));
    const Box box = whole ? whole_box(shape) : wanted.box;
    LOOM_CHECK(at::IntArrayRef(box.size) == wanted.tensor.sizes(), "tensor ", wanted.name, " does not fit its box ",
               box.str());
    for (const StoredBox& source : stored.boxes) {
      const Box common = intersect(source.box, box);
      if (common.empty()) continue;
      const SafetensorsReader& reader = reader_of(folder, manifest, source.file, options.verify, readers);
      Tensor from = reader.tensor(source.key);
      LOOM_CHECK_USER(from.scalar_type() == stored.dtype && from.sizes() == at::IntArrayRef(source.box.size), folder,
                      "/", source.file, ": tensor '", source.key, "' is ",
                      describe(from.scalar_type(), from.sizes().vec()), "; the manifest says ",
                      describe(stored.dtype, source.box.size));
      Tensor to = wanted.tensor.detach();
      copies.push_back({box_view(to, common, box), box_view(from, common, source.box)});
    }
  }
  for (Copy& copy : copies) copy.to.copy_(copy.from);
  return manifest;
}

}  // namespace loom
