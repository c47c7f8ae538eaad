// Folders and renames. Names: step-N is complete; step-N.tmp-PID is being written, or was when its process died;
// step-N.old-PID is the previous step-N on file systems that cannot swap two folders at once.
#include "core/checkpoint/folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/checkpoint/manifest.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

struct FolderName {
  int64_t step = -1;
  std::string suffix;  // "", "tmp" or "old"
  int64_t pid = 0;
};

std::optional<int64_t> whole_number(std::string_view text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return std::stoll(std::string(text));
}

std::optional<FolderName> parse_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  FolderName out;
  const std::string_view rest = std::string_view(name).substr(kPrefix.size());
  const size_t dot = rest.find('.');
  const std::optional<int64_t> step = whole_number(rest.substr(0, dot));
  if (!step.has_value()) return std::nullopt;
  out.step = *step;
  if (dot == std::string_view::npos) return out;
  const std::string_view tail = rest.substr(dot + 1);
  const size_t dash = tail.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  out.suffix = std::string(tail.substr(0, dash));
  const std::optional<int64_t> pid = whole_number(tail.substr(dash + 1));
  if ((out.suffix != "tmp" && out.suffix != "old") || !pid.has_value()) return std::nullopt;
  out.pid = *pid;
  return out;
}

std::string checkpoints_dir(const std::string& run_dir) { return run_dir + "/checkpoints"; }

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// Every folder entry with a name of ours. A run without checkpoints has none.
std::vector<std::pair<FolderName, std::string>> scan(const std::string& parent) {
  std::vector<std::pair<FolderName, std::string>> out;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::optional<FolderName> parsed = parse_name(name);
    if (parsed.has_value()) out.emplace_back(*parsed, concat(parent, "/", name));
  }
  if (error && error.value() != ENOENT) throw_file_error("read folder", parent, error.value());
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.first.step != b.first.step ? a.first.step < b.first.step : a.second < b.second;
  });
  return out;
}

// A folder of a living process may still be in work.
bool abandoned(int64_t pid) { return pid == ::getpid() || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH); }

void clean_leftovers(const std::string& parent) {
  for (const auto& [name, path] : scan(parent)) {
    if (name.suffix.empty() || !abandoned(name.pid)) continue;
    const std::string home = concat(parent, "/step-", name.step);
    if (name.suffix == "old" && !exists(home) && ::rename(path.c_str(), home.c_str()) == 0) continue;
    remove_quietly(path);
  }
}

void move_into_place(const std::string& temporary, const std::string& home) {
  if (!exists(home)) {
    if (::rename(temporary.c_str(), home.c_str()) != 0) throw_file_error("rename to", home, errno);
    return;
  }
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, home.c_str(), RENAME_EXCHANGE) == 0) {
    remove_quietly(temporary);
    return;
  }
  const std::string aside = concat(home, ".old-", ::getpid());
  remove_quietly(aside);
  if (::rename(home.c_str(), aside.c_str()) != 0) throw_file_error("rename", home, errno);
  if (::rename(temporary.c_str(), home.c_str()) != 0) {
    const int error = errno;
    if (::rename(aside.c_str(), home.c_str()) != 0) log_warn("the earlier checkpoint now lies in ", aside);
    throw_file_error("rename to", home, error);
  }
  remove_quietly(aside);
}

}  // namespace

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::string step_folder(const std::string& run_dir, int64_t step) {
  return concat(checkpoints_dir(run_dir), "/step-", step);
}

std::string begin_folder(const std::string& run_dir, int64_t step) {
  const std::string temporary = concat(step_folder(run_dir, step), ".tmp-", ::getpid());
  make_dirs(checkpoints_dir(run_dir));
  fsync_dir(run_dir);
  clean_leftovers(checkpoints_dir(run_dir));
  make_dirs(temporary);
  return temporary;
}

void publish_folder(const std::string& temporary, const std::string& run_dir, int64_t step) {
  move_into_place(temporary, step_folder(run_dir, step));
  fsync_dir(checkpoints_dir(run_dir));
}

std::string file_damage(const std::string& folder, const std::string& name, const StoredFile& file) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(concat(folder, "/", name), error);
  if (error) return concat(folder, "/", name, ": missing");
  if (bytes == static_cast<uintmax_t>(file.bytes)) return "";
  return concat(folder, "/", name, bytes < static_cast<uintmax_t>(file.bytes) ? ": truncated" : ": too long",
                ": expected ", file.bytes, " bytes, found ", bytes);
}

std::string checkpoint_damage(const std::string& folder) {
  if (!is_file(folder + "/" + kManifestName)) return concat(folder, ": no ", kManifestName);
  try {
    for (const auto& [name, file] : read_manifest(folder).files) {
      const std::string damage = file_damage(folder, name, file);
      if (!damage.empty()) return damage;
    }
  } catch (const Error& problem) {
    return problem.what();
  }
  return "";
}

std::vector<FolderState> checkpoint_folders(const std::string& run_dir) {
  std::vector<FolderState> out;
  for (const auto& [name, path] : scan(checkpoints_dir(run_dir))) {
    // A kill between the two renames of move_into_place leaves only the older one of a step.
    const bool stand_in = name.suffix == "old" && !exists(step_folder(run_dir, name.step));
    if (!name.suffix.empty() && !stand_in) continue;
    out.push_back({name.step, path, checkpoint_damage(path)});
  }
  return out;
}

std::vector<CheckpointInfo> list_checkpoints(const std::string& run_dir, std::vector<std::string>* damaged) {
  std::map<int64_t, std::string> found;
  for (const FolderState& state : checkpoint_folders(run_dir)) {
    if (state.damage.empty()) {
      found[state.step] = state.folder;
    } else if (damaged != nullptr) {
      damaged->push_back(state.damage);
    }
  }
  std::vector<CheckpointInfo> out;
  for (const auto& [step, folder] : found) out.push_back({step, folder});
  return out;
}

std::optional<CheckpointInfo> latest_checkpoint(const std::string& run_dir) {
  std::optional<CheckpointInfo> newest;
  std::vector<FolderState> damaged;  // since then
  for (const FolderState& state : checkpoint_folders(run_dir)) {
    if (!state.damage.empty()) {
      damaged.push_back(state);
      continue;
    }
    newest = {state.step, state.folder};
    damaged.clear();
  }
  const std::string instead = newest.has_value() ? concat("taking step ", newest->step) : "there is no other";
  for (const FolderState& state : damaged) {
    if (newest.has_value() && state.step == newest->step) continue;
    log_warn("checkpoint step ", state.step, " is damaged (", state.damage, "); ", instead);
  }
  return newest;
}

int64_t prune_checkpoints(const std::string& run_dir, int64_t keep) {
  const std::vector<CheckpointInfo> complete = list_checkpoints(run_dir);
  const int64_t surplus = keep <= 0 ? 0 : static_cast<int64_t>(complete.size()) - keep;
  int64_t removed = 0;
  for (int64_t i = 0; i < surplus; ++i) {
    const CheckpointInfo& victim = complete[static_cast<size_t>(i)];
    // Renamed first, so that a kill on the way never leaves a half-empty folder under a valid name.
    const std::string trash = concat(checkpoints_dir(run_dir), "/step-", victim.step, ".tmp-", ::getpid());
    remove_quietly(trash);
    if (::rename(victim.folder.c_str(), trash.c_str()) != 0) throw_file_error("remove", victim.folder, errno);
    remove_quietly(trash);
    ++removed;
  }
  return removed;
}

}  // namespace loom
