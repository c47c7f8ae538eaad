// The search path. Errors of single folders are not fatal: a variable that names a folder which is gone must not stop a
// run that needs nothing from it; `plugin list` shows what was found.
#include "plugins/loader/discovery.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/model/component_spec.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

std::string canonical_text(const fs::path& path) {
  std::error_code error;
  const fs::path out = fs::weakly_canonical(path, error);
  return error ? path.string() : out.string();
}

}  // namespace

std::string core_plugin_folder() {
  Dl_info info{};
  // Any function that lives in the core will do.
  if (dladdr(reinterpret_cast<const void*>(&kind_name), &info) == 0 || info.dli_fname == nullptr) return {};
  return canonical_text(fs::path(canonical_text(info.dli_fname)).parent_path() / "omniloom" / "plugins");
}

std::vector<SearchPlace> standard_places() {
  std::vector<SearchPlace> out;
  const char* variable = std::getenv("OMNILOOM_PLUGIN_PATH");
  bool any = false;
  for (const std::string& part : split(variable == nullptr ? "" : variable, ':')) {
    if (part.empty()) continue;
    any = true;
    out.push_back({canonical_text(part), part + " (OMNILOOM_PLUGIN_PATH)", SearchPlace::Rank::elsewhere});
  }
  if (!any) out.push_back({"", "OMNILOOM_PLUGIN_PATH (empty)", SearchPlace::Rank::elsewhere});
  const std::string own = core_plugin_folder();
  if (!own.empty()) out.push_back({own, own, SearchPlace::Rank::elsewhere});
  return out;
}

std::vector<FoundPlugin> scan(const std::vector<SearchPlace>& places) {
  std::vector<FoundPlugin> out;
  std::set<std::string> seen;
  const auto take = [&](const fs::path& file, SearchPlace::Rank rank) {
    FoundPlugin found{canonical_text(file), rank, std::nullopt};
    if (!seen.insert(found.path).second) return;
    try {
      found.descriptor = read_descriptor(found.path);
    } catch (const UserError&) {
      return;  // unreadable: as if it were not there
    }
    out.push_back(std::move(found));
  };
  for (const SearchPlace& place : places) {
    std::error_code error;
    if (place.path.empty()) continue;
    if (fs::is_regular_file(place.path, error)) {
      take(place.path, place.rank);
      continue;
    }
    std::vector<fs::path> files;
    for (fs::directory_iterator it(place.path, error), end; !error && it != end; it.increment(error)) {
      if (it->path().filename().string().ends_with(kPluginSuffix)) files.push_back(it->path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) take(file, place.rank);
  }
  return out;
}

std::string searched_text(const std::vector<SearchPlace>& places) {
  std::vector<std::string> shown;
  for (const SearchPlace& place : places) shown.push_back(place.shown);
  return join(shown, ", ");
}

}  // namespace loom
