#pragma once
// `omniloom plugin list|info|check|new`: what is found, what it is, why it does not fit, and how to start one.
#include <iosfwd>
#include <string>
#include <vector>

#include "pipelines/cli.h"

namespace loom {

class PluginLoader;

// Adds `plugin` with its subcommands; the chosen one sets `run`.
void add_plugin_commands(CLI::App& root, Command& run);

// The commands themselves, apart from the command line. They return exit code 0 or throw.
int list_plugins(PluginLoader& loader, std::ostream& out);
// A type or plugin name on the search path, or a file. `weights` also lists the names of external checkpoints.
int show_plugin(PluginLoader& loader, const std::string& name_or_file, bool weights, std::ostream& out);
// PluginError with the first reason why the file cannot be used.
int check_plugin(PluginLoader& loader, const std::string& file, std::ostream& out);
int new_plugin(const std::string& kind, const std::string& name, const std::string& folder, std::ostream& out);

}  // namespace loom
