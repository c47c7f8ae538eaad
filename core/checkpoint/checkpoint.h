#pragma once
// Saving and finding checkpoints: RUN/checkpoints/step-N/ with one safetensors file per rank and a manifest. A folder
// is built under a temporary name and renamed when it is complete and on disk, so at any instant the newest complete
// checkpoint can be loaded: after a kill, on a full disk, or while the next one is being written.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/checkpoint/manifest.h"
#include "core/mesh/box.h"

namespace loom {

// A tensor under its global name, or a part of it, which then says which.
struct NamedTensor {
  std::string name;
  Tensor tensor;
  std::vector<int64_t> shape{};  // of the global tensor; read only when box is set
  Box box{};                     // which part `tensor` is; no dimensions = the whole
  bool counted = true;           // false: another rank holds the same part and saves it
};

struct CheckpointInfo {
  int64_t step = 0;
  std::string folder;
};

// Writes step-N from whole tensors (gather_tensors in parts.h), replacing an existing one of that step at once. Returns
// the folder. EnvironmentError (with path and "disk full" or the system's words) leaves everything saved before as it
// was. Also removes what crashed saves left behind.
std::string save_checkpoint(const std::string& run_dir, int64_t step, const std::vector<NamedTensor>& tensors,
                            const std::string& extra_json = "{}");

// Why a checkpoint folder cannot be used, in a few words; empty when manifest and files are there with the right sizes.
std::string checkpoint_damage(const std::string& folder);
// Complete checkpoints by ascending step. Damaged folders are left out and, if asked for, described.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_dir, std::vector<std::string>* damaged = nullptr);
// The newest complete one. A damaged folder that is newer is named in a warning.
std::optional<CheckpointInfo> latest_checkpoint(const std::string& run_dir);
// Keeps the newest `keep` complete checkpoints (0 = all) and returns how many went.
int64_t prune_checkpoints(const std::string& run_dir, int64_t keep);

// What to do with tensors of a checkpoint that nobody asked for.
enum class Unasked { refuse = 1, ignore };

struct LoadOptions {
  Unasked unasked = Unasked::refuse;
  bool verify = true;  // checksums of all files read
};

// Fills the tensors by name (several parts of one are allowed); nothing is changed unless all names, dtypes, shapes and
// checksums agree. UserError in one line otherwise, with the nearest name. Returns the manifest, whose `extra` holds
// everything else.
Manifest load_checkpoint(const std::string& folder, const std::vector<NamedTensor>& tensors,
                         const LoadOptions& options = {});

}  // namespace loom
