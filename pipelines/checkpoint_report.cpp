#include "pipelines/checkpoint_report.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ostream>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/checkpoint/folders.h"
#include "core/checkpoint/verify.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

bool is_run(const std::string& path) { return is_folder(path + "/checkpoints"); }

bool is_checkpoint(const std::string& path) {
  return is_file(path + "/" + kManifestName) || fs::path(path).filename().string().rfind("step-", 0) == 0;
}

// "runs/demo/" is runs/demo.
std::string tidy(const std::string& path) {
  std::string out = fs::path(path).lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

[[noreturn]] void throw_no_folder(const std::string& path, const char* expected) {
  const fs::path parent = fs::path(path).parent_path();
  std::vector<std::string> near;
  std::error_code error;
  for (fs::directory_iterator it(parent.empty() ? "." : parent, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error)) near.push_back((parent / it->path().filename()).string());
  }
  throw UserError(concat(path, is_folder(path) ? ": holds no checkpoints" : ": no such folder", "; expected ", expected,
                         did_you_mean(path, near)));
}

std::vector<FolderState> folders_of(const std::string& run) {
  if (!is_run(run)) throw_no_folder(run, "a run");
  std::vector<FolderState> out = checkpoint_folders(run);
  LOOM_CHECK_USER(!out.empty(), run, ": holds no checkpoint yet");
  return out;
}

double age_of(const std::string& folder) {
  struct stat info {};
  if (::stat((folder + "/" + kManifestName).c_str(), &info) != 0 && ::stat(folder.c_str(), &info) != 0) return 0;
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return std::max(0.0, now - static_cast<double>(info.st_mtim.tv_sec));
}

int64_t size_of(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const uintmax_t size = it->file_size(error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width - std::min(width, utf8_columns(text)), ' ') + text + "  ";
}

}  // namespace

std::string checkpoint_at(const std::string& path) {
  const std::string name = tidy(path);
  if (is_run(name)) {
    const auto latest = latest_checkpoint(name);
    LOOM_CHECK_USER(latest.has_value(), name, ": holds no complete checkpoint");
    return latest->folder;
  }
  if (!is_folder(name) || !is_checkpoint(name)) throw_no_folder(name, "a run or one of its checkpoints");
  LOOM_CHECK_USER(is_file(name + "/" + kManifestName), name, ": no ", kManifestName, "; the checkpoint is damaged");
  return name;
}

int list_checkpoints_of(const std::string& run, std::ostream& out) {
  const std::vector<FolderState> folders = folders_of(tidy(run));
  constexpr size_t kStep = 10, kSize = 9, kRanks = 6, kAge = 9;
  out << padded("step", kStep) << padded("size", kSize) << padded("ranks", kRanks) << padded("age", kAge) << "state\n";
  for (const FolderState& folder : folders) {
    std::string ranks = "-";
    if (folder.damage.empty()) ranks = std::to_string(read_manifest(folder.folder).world);
    out << padded(std::to_string(folder.step), kStep)
        << padded(human_bytes(static_cast<double>(size_of(folder.folder))), kSize) << padded(ranks, kRanks)
        << padded(human_duration(age_of(folder.folder)), kAge)
        << (folder.damage.empty() ? "complete" : "damaged: " + folder.damage) << "\n";
  }
  return 0;
}

int verify_checkpoints_at(const std::string& path, std::ostream& out, std::ostream& bad) {
  const std::string name = tidy(path);
  std::vector<std::string> folders;
  if (is_run(name)) {
    for (const FolderState& folder : folders_of(name)) folders.push_back(folder.folder);
  } else if (is_folder(name) && is_checkpoint(name)) {
    folders.push_back(name);
  } else {
    throw_no_folder(name, "a run or one of its checkpoints");
  }
  int code = 0;
  for (const std::string& folder : folders) {
    const std::vector<std::string> damage = verify_checkpoint(folder);
    for (const std::string& line : damage) bad << line << "\n";
    if (!damage.empty()) {
      code = 2;
      continue;
    }
    const Manifest manifest = read_manifest(folder);
    int64_t bytes = 0;
    for (const auto& [file, stored] : manifest.files) bytes += stored.bytes;
    out << folder << ": ok, " << manifest.tensors.size() << " tensors, " << manifest.files.size()
        << (manifest.files.size() == 1 ? " file, " : " files, ") << human_bytes(static_cast<double>(bytes)) << "\n";
  }
  return code;
}

}  // namespace loom
