#pragma once
// Where plugin files are looked for, and what lies there. Scanning reads descriptors only; nothing is opened.
#include <optional>
#include <string>
#include <vector>

#include "plugins/loader/descriptor.h"

namespace loom {

inline constexpr const char* kPluginSuffix = ".omniloom.so";

// A folder, or one file, to look in. Lower ranks are nearer to the user.
struct SearchPlace {
  enum class Rank { recipe_file = 1, recipe_folder, elsewhere };
  std::string path;   // canonical; "" = the variable is empty
  std::string shown;  // as messages name it
  Rank rank = Rank::elsewhere;
};

struct FoundPlugin {
  std::string path;  // canonical
  SearchPlace::Rank rank = SearchPlace::Rank::elsewhere;
  std::optional<Descriptor> descriptor;
};

// The folders of OMNILOOM_PLUGIN_PATH (a colon list) and the one beside the core library, in this order.
std::vector<SearchPlace> standard_places();
// <folder of libomniloom_core.so>/omniloom/plugins: the same in the build tree and in an install tree.
std::string core_plugin_folder();
// All plugin files of the places, each once (links to one file count once), in search order and by name within a
// folder.
std::vector<FoundPlugin> scan(const std::vector<SearchPlace>& places);
// "runs/../plugins, OMNILOOM_PLUGIN_PATH (empty), <lib>/omniloom/plugins", for the message about an unknown type.
std::string searched_text(const std::vector<SearchPlace>& places);

}  // namespace loom
