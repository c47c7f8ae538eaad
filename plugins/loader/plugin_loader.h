#pragma once
// Finds, checks, opens and registers plugins. Called early, from one thread; nothing is ever unloaded, and there is no
// hot reload: autograd graphs, exceptions, hooks and optimizer state all hold code of the plugin that made them.
#include <deque>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/model/registry.h"
#include "plugins/loader/discovery.h"
#include "plugins/sdk/plugin.h"

namespace loom {

// A line of `plugin list`.
struct PluginStatus {
  std::string name;
  std::string version;
  std::vector<std::string> provides;
  std::string path;    // "" = linked into the program
  std::string status;  // "linked in", "loaded", "fits", "refused"
  std::string reason;  // of a refusal
};

class PluginLoader {
 public:
  // Registers the plugins that are linked into the program.
  explicit PluginLoader(Registry& registry);

  // Adds a file or folder that a recipe or a flag names; a relative path starts at the working folder or, failing that,
  // at the folder of the recipe. Returns it in canonical form. UserError "recipe.yaml:3:4: plugins: no such file or
  // folder 'x'".
  std::string add_path(const std::string& path, const Mark& where);

  // The spec of that name, from what is linked in, loaded, or found on the search path (only then a file is opened). An
  // unknown name is a mistake (null pointer); a plugin that exists but cannot be used is a PluginError. `key` is the
  // recipe's key path.
  const ComponentSpec* find(ComponentKind kind, const std::string& name, const Mark& where, const std::string& key,
                            Mistakes& mistakes);
  // The same; UserError for an unknown name.
  const ComponentSpec& require(ComponentKind kind, const std::string& name, const Mark& where, const std::string& key);
  // Checks, opens and registers one file. PluginError with one line; a file that is already loaded is fine.
  const Descriptor& load(const std::string& file);
  // Why the file cannot be used, found without opening it; "" when it fits.
  std::string refuse_reason(const FoundPlugin& plugin) const;

  // Everything linked in or found, with its state.
  std::vector<PluginStatus> list() const;
  // What each loaded plugin was built from, a line each: "vit 0.1.0 5f0c2a9e1b7d3388", in order of names.
  std::vector<std::string> builds() const;
  std::string searched() const { return searched_text(places()); }
  // The file that brought a type, or "linked in".
  std::string owner(ComponentKind kind, const std::string& name) const { return registry_.owner(kind, name); }
  Registry& registry() { return registry_; }

 private:
  struct Loaded {
    Descriptor descriptor;
    std::string path;  // "" = linked in
  };

  std::vector<SearchPlace> places() const;  // the recipe's, then the standard ones
  std::vector<std::string> known_names(ComponentKind kind, const std::vector<FoundPlugin>& found) const;
  // Returns what the plugin registered, as "kind:name".
  std::vector<std::string> register_entry(const PluginEntry& entry, const Descriptor& descriptor,
                                          const std::string& owner);
  const Loaded* loaded(const std::string& plugin) const;

  Registry& registry_;
  std::vector<SearchPlace> recipe_places_;
  std::deque<Loaded> loaded_;  // references to entries stay valid
};

}  // namespace loom
