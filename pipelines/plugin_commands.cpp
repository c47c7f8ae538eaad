#include "pipelines/plugin_commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "core/base/error.h"
#include "core/base/text.h"
#include "pipelines/plugin_template.h"
#include "plugins/loader/plugin_loader.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

constexpr ComponentKind kKinds[] = {ComponentKind::encoder, ComponentKind::connector, ComponentKind::backbone};

std::string headline(const ComponentSpec& spec, const Descriptor& descriptor) {
  std::string what = kind_name(spec.kind);
  if (spec.kind == ComponentKind::encoder) what += concat(" for modality \"", spec.capabilities.modality, "\"");
  return concat(descriptor.label(), " · ", what, " · built for omniloom ", descriptor.field("sdk"), ", LibTorch ",
                descriptor.field("torch"), " · fits this core");
}

// "merge 1 · cuts at 1 token", as far as the spec knows.
std::string traits(const ComponentSpec& spec) {
  std::string out =
      concat("axes    ", join(spec.capabilities.axes, " "), " · dtypes ", join(spec.capabilities.dtypes, " "));
  for (const Field& field : spec.schema.fields()) {
    if (field.name == "merge") out += concat(" · merge ", field.fallback.text());
  }
  if (spec.kind == ComponentKind::encoder)
    out += spec.capabilities.splits_items ? " · items may be cut" : " · items stay whole";
  return out;
}

void show_spec(const ComponentSpec& spec, const Descriptor& descriptor, bool weights, std::ostream& out) {
  out << headline(spec, descriptor) << "\n";
  if (!spec.doc.empty()) out << spec.doc << "\n";
  out << (spec.schema.fields().empty() ? "config  none\n" : "config\n") << spec.schema.describe(2);
  out << traits(spec) << "\n";
  if (spec.weights.empty()) return;
  out << "weights " << spec.weights.size() << " names of external checkpoints are known"
      << (weights ? "\n" : " (--weights lists them)\n");
  if (!weights) return;
  for (const WeightRule& rule : spec.weights) out << "  " << rule.external << " -> " << rule.ours << "\n";
}

// Which file, or "" for something linked in, brings a plugin or a component of that name?
std::string find_file(const PluginLoader& loader, const std::string& name) {
  std::vector<std::string> names;
  const PluginStatus* best = nullptr;
  const std::vector<PluginStatus> all = loader.list();
  for (const PluginStatus& plugin : all) {
    bool match = plugin.name == name;
    for (const std::string& provided : plugin.provides) {
      names.push_back(provided.substr(provided.find(':') + 1));
      match = match || names.back() == name;
    }
    if (match && (best == nullptr || (best->status == "refused" && plugin.status != "refused"))) best = &plugin;
  }
  if (best == nullptr) {
    const std::string hint = did_you_mean(name, names);
    throw UserError(
        concat("no plugin ", quote_text(name), hint.empty() ? ";" : hint, " searched: ", loader.searched()));
  }
  return best->path;
}

void print_row(std::ostream& out, const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    line += cells[i];
    if (i + 1 < cells.size()) line += std::string(widths[i] - cells[i].size() + 2, ' ');
  }
  out << line << "\n";
}

}  // namespace

int list_plugins(PluginLoader& loader, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"name", "version", "provides", "status", "file"}};
  for (const PluginStatus& plugin : loader.list()) {
    rows.push_back({plugin.name.empty() ? "-" : plugin.name, plugin.version.empty() ? "-" : plugin.version,
                    plugin.provides.empty() ? "-" : join(plugin.provides, ","), plugin.status,
                    plugin.reason.empty() ? (plugin.path.empty() ? "-" : plugin.path) : plugin.reason});
  }
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  if (rows.size() > 1) {
    for (const auto& row : rows) print_row(out, row, widths);
  } else {
    out << "no plugins found\n";
  }
  out << "searched: " << loader.searched() << "\n";
  return 0;
}

int show_plugin(PluginLoader& loader, const std::string& name_or_file, bool weights, std::ostream& out) {
  const bool is_file = name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".so");
  const std::string file = is_file ? name_or_file : find_file(loader, name_or_file);
  Descriptor descriptor = core_descriptor();
  std::string owner = "this program";
  if (!file.empty()) {
    descriptor = loader.load(file);
    owner = fs::canonical(file).string();
  } else {
    for (const PluginStatus& plugin : loader.list()) {
      if (plugin.path.empty() && (plugin.name == name_or_file ||
                                  std::any_of(plugin.provides.begin(), plugin.provides.end(),
                                              [&](const std::string& p) { return p.ends_with(":" + name_or_file); }))) {
        descriptor.name = plugin.name;
        descriptor.version = plugin.version;
        descriptor.provides = plugin.provides;
      }
    }
  }
  Registry& registry = loader.registry();
  for (const ComponentKind kind : kKinds) {
    for (const std::string& name : registry.names(kind)) {
      const bool ours = registry.owner(kind, name) == owner && descriptor.offers(concat(kind_name(kind), ":", name));
      if (ours) show_spec(*registry.find(kind, name), descriptor, weights, out);
    }
  }
  out << "file    " << (file.empty() ? "linked into this program" : owner) << "\n";
  return 0;
}

int check_plugin(PluginLoader& loader, const std::string& file, std::ostream& out) {
  const Descriptor& descriptor = loader.load(file);
  out << file << ": " << descriptor.label() << " provides " << join(descriptor.provides, ", ") << " · fits this core\n";
  return 0;
}

int new_plugin(const std::string& kind, const std::string& name, const std::string& folder, std::ostream& out) {
  for (const std::string& file : write_template(template_folder(), kind, name, folder)) out << "wrote " << file << "\n";
  const std::string dir = fs::path(folder).lexically_normal().string();
  const std::string build = (fs::path(dir) / "build").string();
  out << "next   cmake -S " << dir << " -B " << build << " && cmake --build " << build << "\n";
  out << "then   plugins: [" << build << "/lib" << name << ".omniloom.so]   in a recipe\n";
  return 0;
}

void add_plugin_commands(CLI::App& root, Command& run) {
  struct Options {
    std::vector<std::string> paths;
    std::string name, kind, folder;
    bool weights = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* plugin = root.add_subcommand("plugin", "list, describe, check and start plugins");
  plugin->require_subcommand(1);
  // Every command gets a loader of its own with the paths that were given.
  const auto with_loader = [options, &run](const std::function<int(PluginLoader&)>& command) {
    run = [options, command] {
      Registry registry;
      PluginLoader loader(registry);
      for (const std::string& path : options->paths) loader.add_path(path, {"command line", 0, 0});
      return command(loader);
    };
  };

  CLI::App* list = plugin->add_subcommand("list", "every plugin on the search path, with its state");
  list->add_option("--plugins", options->paths, "more files or folders to search");
  list->callback([=] { with_loader([](PluginLoader& loader) { return list_plugins(loader, std::cout); }); });

  CLI::App* info = plugin->add_subcommand("info", "configuration and abilities of a plugin");
  info->add_option("name", options->name, "a name on the search path, or a file")->required();
  info->add_flag("--weights", options->weights, "list the names of external checkpoints");
  info->add_option("--plugins", options->paths, "more files or folders to search");
  info->callback([=] {
    with_loader(
        [options](PluginLoader& loader) { return show_plugin(loader, options->name, options->weights, std::cout); });
  });

  CLI::App* check = plugin->add_subcommand("check", "does a plugin file fit this core? If not, why?");
  check->add_option("file", options->name, "a .omniloom.so file")->required();
  check->callback(
      [=] { with_loader([options](PluginLoader& loader) { return check_plugin(loader, options->name, std::cout); }); });

  CLI::App* create = plugin->add_subcommand("new", "write a complete plugin project");
  create->add_option("kind", options->kind, "encoder, backbone or connector")->required();
  create->add_option("name", options->name, "small letters, digits and _")->required();
  create->add_option("folder", options->folder, "a folder that does not exist yet, or is empty")->required();
  create->callback([options, &run] {
    run = [options] { return new_plugin(options->kind, options->name, options->folder, std::cout); };
  });
}

}  // namespace loom
