#include "pipelines/run_folder.h"

#include <filesystem>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"

namespace loom {
namespace fs = std::filesystem;

std::string make_run_folder(const std::string& name, const std::string& requested, bool replace) {
  if (requested.empty()) {
    for (int n = 1;; ++n) {
      const std::string path = concat("runs/", name, "-", n);
      if (fs::exists(path)) continue;
      make_dirs(path);
      return path;
    }
  }
  std::error_code failed;
  if (fs::exists(requested, failed) && !fs::is_directory(requested, failed)) {
    throw UserError(concat(requested, ": is a file; a run needs a folder"));
  }
  if (fs::is_directory(requested, failed) && !fs::is_empty(requested, failed)) {
    const bool is_run = is_file(requested + "/" + kResolvedRecipe);
    LOOM_CHECK_USER(is_run, requested, ": is not empty and holds no run; choose another --run folder");
    LOOM_CHECK_USER(replace, requested, ": holds a run; go on with --resume ", requested,
                    ", or start anew with --replace");
    fs::remove_all(requested, failed);
    if (failed) throw EnvironmentError(concat("cannot remove ", requested, ": ", failed.message()));
  }
  make_dirs(requested);
  return requested;
}

std::string resolved_recipe_of(const std::string& run) {
  const std::string file = run + "/" + kResolvedRecipe;
  LOOM_CHECK_USER(is_file(file), run, ": holds no run (", kResolvedRecipe, " is missing)");
  return file;
}

}  // namespace loom
