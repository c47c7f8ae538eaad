#pragma once
// The folders of a run's checkpoints: RUN/checkpoints/step-N. One is built under a temporary name and renamed when it
// is complete and on disk, so at any instant the newest complete checkpoint can be loaded: after a kill, on a full
// disk, or while the next one is being written.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.h"

namespace loom {

struct CheckpointInfo {
  int64_t step = 0;
  std::string folder;
};

std::string step_folder(const std::string& run_dir, int64_t step);

// Of the one process that begins and publishes: removes what crashed saves left behind and makes an empty folder for
// step N, whose name it returns.
std::string begin_folder(const std::string& run_dir, int64_t step);
// Gives it its name, in place of an existing one of that step at once.
void publish_folder(const std::string& temporary, const std::string& run_dir, int64_t step);
// A folder nobody needs; nothing happens when it cannot be removed.
void remove_quietly(const std::string& path);

// Why a file of a checkpoint cannot be used, judged by its size; empty when it can.
std::string file_damage(const std::string& folder, const std::string& name, const StoredFile& file);
// Why a checkpoint folder cannot be used, in a few words; empty when manifest and files are there with the right sizes.
std::string checkpoint_damage(const std::string& folder);
struct FolderState {
  int64_t step = 0;
  std::string folder;
  std::string damage;  // empty = complete
};

// All checkpoints that have their name, by ascending step.
std::vector<FolderState> checkpoint_folders(const std::string& run_dir);
// Complete checkpoints by ascending step. Damaged folders are left out and, if asked for, described.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_dir, std::vector<std::string>* damaged = nullptr);
// The newest complete one. A damaged folder that is newer is named in a warning.
std::optional<CheckpointInfo> latest_checkpoint(const std::string& run_dir);
// Keeps the newest `keep` complete checkpoints (0 = all) and returns how many went.
int64_t prune_checkpoints(const std::string& run_dir, int64_t keep);

}  // namespace loom
