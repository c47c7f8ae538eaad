// The only file that opens shared libraries (Boost.DLL). Everything that can be known from descriptors is settled
// before; what remains are the words of the dynamic linker, which are turned into one line.
#define BOOST_DLL_USE_STD_FS
#include "plugins/loader/plugin_loader.h"

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "plugins/loader/builtin_table.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

constexpr ComponentKind kKinds[] = {ComponentKind::encoder, ComponentKind::connector, ComponentKind::backbone};

// Handles are kept for good and never copied: a copy would open the file once more, by path.
void keep_forever(boost::dll::shared_library handle) {
  static auto* handles = new std::vector<boost::dll::shared_library>();
  handles->push_back(std::move(handle));
}

// Boost wraps the linker's words: "... (dlerror system message: <real reason>): Bad file descriptor".
std::string load_reason(const std::string& what) {
  const std::string marker = "dlerror system message: ";
  const size_t begin = what.find(marker);
  if (begin == std::string::npos) return what;
  std::string reason = what.substr(begin + marker.size());
  const size_t end = reason.rfind(')');
  if (end != std::string::npos) reason.resize(end);
  const size_t missing = reason.find(": cannot open shared object file");
  if (missing != std::string::npos) return reason.substr(0, missing) + " not found (needed by the plugin)";
  return reason;
}

std::string kind_and_name(ComponentKind kind, const std::string& name) {
  return std::string(kind_name(kind)) + ":" + name;
}

std::string provided_by_both(const std::string& what, const std::string& a, const std::string& b) {
  return concat(what, " is provided by both ", a, " and ", b, "; keep one or give a path in the recipe");
}

// "encoder:vit" -> "encoder 'vit'".
std::string spoken(const std::string& provided) {
  const size_t colon = provided.find(':');
  return colon == std::string::npos ? quote_text(provided)
                                    : provided.substr(0, colon) + " " + quote_text(provided.substr(colon + 1));
}

}  // namespace

PluginLoader::PluginLoader(Registry& registry) : registry_(registry) {
  for (PluginEntryFunction* function : builtin_plugins()) {
    const PluginEntry& entry = *function();
    Descriptor descriptor = core_descriptor();
    descriptor.name = entry.name;
    descriptor.version = entry.version;
    descriptor.provides = register_entry(entry, descriptor, "this program");
    loaded_.push_back({std::move(descriptor), ""});
  }
}

std::string PluginLoader::add_path(const std::string& path, const Mark& where) {
  std::error_code error;
  fs::path found = path;
  if (!fs::exists(found, error) && found.is_relative()) found = fs::path(where.file).parent_path() / path;
  if (!fs::exists(found, error)) {
    throw UserError(concat(where.str(), ": plugins: no such file or folder ", quote_text(path)));
  }
  const bool folder = fs::is_directory(found, error);
  recipe_places_.push_back({fs::canonical(found).string(), path,
                            folder ? SearchPlace::Rank::recipe_folder : SearchPlace::Rank::recipe_file});
  return recipe_places_.back().path;
}

std::vector<SearchPlace> PluginLoader::places() const {
  std::vector<SearchPlace> out = recipe_places_;
  // Files before folders: a folder must not swallow a file in it that was named on its own.
  std::stable_sort(out.begin(), out.end(), [](const SearchPlace& a, const SearchPlace& b) { return a.rank < b.rank; });
  for (SearchPlace& place : standard_places()) out.push_back(std::move(place));
  return out;
}

const PluginLoader::Loaded* PluginLoader::loaded(const std::string& plugin) const {
  for (const Loaded& other : loaded_) {
    if (other.descriptor.name == plugin) return &other;
  }
  return nullptr;
}

std::string PluginLoader::refuse_reason(const FoundPlugin& plugin) const {
  if (!plugin.descriptor) return concat(plugin.path, ": no omniloom plugin descriptor (is this a plugin library?)");
  const Descriptor& descriptor = *plugin.descriptor;
  if (const auto mismatch = explain_mismatch(descriptor, plugin.path, core_descriptor())) return *mismatch;
  const Loaded* same = loaded(descriptor.name);
  if (same != nullptr && same->path.empty()) {
    return concat("plugin ", quote_text(descriptor.name), " is linked into this program; ", plugin.path,
                  " is not loaded beside it");
  }
  if (same != nullptr && same->path != plugin.path) {
    return provided_by_both("plugin " + quote_text(descriptor.name), same->path, plugin.path);
  }
  return {};
}

const Descriptor& PluginLoader::load(const std::string& file) {
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) throw UserError(concat(file, ": cannot read: ", error.message()));
  for (const Loaded& other : loaded_) {
    if (other.path == path.string()) return other.descriptor;
  }
  const FoundPlugin found{path.string(), SearchPlace::Rank::recipe_file, read_descriptor(path.string())};
  if (const std::string reason = refuse_reason(found); !reason.empty()) throw PluginError(reason);
  const Descriptor& descriptor = *found.descriptor;

  const std::string symbol = "omniloom_plugin_" + descriptor.name;
  const PluginEntry* entry = nullptr;
  try {
    boost::dll::shared_library handle(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
    if (handle.has(symbol)) entry = handle.get<const PluginEntry*()>(symbol)();
    keep_forever(std::move(handle));
  } catch (const std::exception& e) {
    throw PluginError(concat(path.string(), ": cannot load: ", load_reason(e.what())));
  }
  if (entry == nullptr) {
    throw PluginError(concat(path.string(), ": the descriptor names plugin ", quote_text(descriptor.name),
                             ", but the library has no ", symbol, "; build it with omniloom_add_plugin"));
  }
  if (entry->size != sizeof(PluginEntry) || entry->format != kPluginFormat || entry->name != descriptor.name) {
    throw PluginError(concat(path.string(), ": the entry of plugin ", quote_text(descriptor.name),
                             " does not agree with its descriptor. Rebuild the plugin."));
  }
  register_entry(*entry, descriptor, path.string());
  loaded_.push_back({descriptor, path.string()});
  return loaded_.back().descriptor;
}

std::vector<std::string> PluginLoader::register_entry(const PluginEntry& entry, const Descriptor& descriptor,
                                                      const std::string& owner) {
  // A registry of its own first, so that a failure half-way leaves nothing behind.
  Registry fresh;
  Registrar registrar(fresh, owner);
  const auto failed = [&](const std::string& text) {
    return PluginError(concat("plugin ", quote_text(descriptor.name), " failed to register: ", text));
  };
  try {
    entry.register_plugin(registrar);
  } catch (const std::exception& e) {
    throw failed(e.what());
  } catch (...) {
    throw failed("it threw something that is no std::exception");
  }
  std::vector<std::string> provided;
  for (const ComponentKind kind : kKinds) {
    for (const std::string& name : fresh.names(kind)) {
      provided.push_back(kind_and_name(kind, name));
      if (registry_.find(kind, name) == nullptr) continue;
      throw PluginError(provided_by_both(spoken(provided.back()), registry_.owner(kind, name), owner));
    }
  }
  for (const std::string& promised : descriptor.provides) {
    if (std::find(provided.begin(), provided.end(), promised) == provided.end()) {
      throw failed("the descriptor promises " + spoken(promised) + ", which was not registered");
    }
  }
  for (const ComponentKind kind : kKinds) {
    for (const std::string& name : fresh.names(kind)) registry_.add(*fresh.find(kind, name), owner);
  }
  return provided;
}

std::vector<std::string> PluginLoader::known_names(ComponentKind kind, const std::vector<FoundPlugin>& found) const {
  std::vector<std::string> names = registry_.names(kind);
  const std::string prefix = kind_and_name(kind, "");
  for (const FoundPlugin& plugin : found) {
    if (!plugin.descriptor) continue;
    for (const std::string& provided : plugin.descriptor->provides) {
      if (provided.starts_with(prefix)) names.push_back(provided.substr(prefix.size()));
    }
  }
  return names;
}

const ComponentSpec* PluginLoader::find(ComponentKind kind, const std::string& name, const Mark& where,
                                        const std::string& key, Mistakes& mistakes) {
  const std::vector<FoundPlugin> found = scan(places());
  // A file that the recipe itself names must be usable, and must not hide behind something linked in.
  for (const FoundPlugin& plugin : found) {
    if (plugin.rank != SearchPlace::Rank::recipe_file) continue;
    if (!plugin.descriptor || plugin.descriptor->offers(kind_and_name(kind, name))) load(plugin.path);
  }
  if (const ComponentSpec* spec = registry_.find(kind, name)) return spec;

  const FoundPlugin* best = nullptr;
  for (const FoundPlugin& plugin : found) {
    if (!plugin.descriptor || !plugin.descriptor->offers(kind_and_name(kind, name))) continue;
    if (best != nullptr && best->rank == plugin.rank) {
      throw PluginError(provided_by_both(spoken(kind_and_name(kind, name)), best->path, plugin.path));
    }
    if (best == nullptr || plugin.rank < best->rank) best = &plugin;
  }
  if (best == nullptr) {
    const std::string hint = did_you_mean(name, known_names(kind, found));
    mistakes.add(
        where, key,
        concat("no ", kind_name(kind), " ", quote_text(name), hint.empty() ? ";" : hint, " searched: ", searched()));
    return nullptr;
  }
  load(best->path);
  return registry_.find(kind, name);
}

const ComponentSpec& PluginLoader::require(ComponentKind kind, const std::string& name, const Mark& where,
                                           const std::string& key) {
  Mistakes mistakes;
  const ComponentSpec* spec = find(kind, name, where, key, mistakes);
  if (spec == nullptr) throw UserError(mistakes.lines().front());
  return *spec;
}

std::vector<std::string> PluginLoader::builds() const {
  std::vector<std::string> out;
  for (const Loaded& plugin : loaded_) {
    std::string line = plugin.descriptor.label();
    if (!plugin.path.empty()) line += concat(" ", std::hex, hash_name(read_text(plugin.path)));
    out.push_back(std::move(line));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<PluginStatus> PluginLoader::list() const {
  std::vector<PluginStatus> out;
  for (const Loaded& plugin : loaded_) {
    out.push_back({plugin.descriptor.name, plugin.descriptor.version, plugin.descriptor.provides, plugin.path,
                   plugin.path.empty() ? "linked in" : "loaded", ""});
  }
  for (const FoundPlugin& plugin : scan(places())) {
    bool listed = false;
    for (const Loaded& other : loaded_) listed = listed || other.path == plugin.path;
    if (listed) continue;
    PluginStatus status;
    if (plugin.descriptor) {
      status.name = plugin.descriptor->name;
      status.version = plugin.descriptor->version;
      status.provides = plugin.descriptor->provides;
    }
    status.path = plugin.path;
    status.reason = refuse_reason(plugin);
    status.status = status.reason.empty() ? "fits" : "refused";
    out.push_back(std::move(status));
  }
  return out;
}

}  // namespace loom
