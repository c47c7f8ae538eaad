#pragma once
// The text that a plugin carries about itself, read from the file without opening it as a library, and its comparison
// with this core. A plugin is a C++ library built against one SDK and one LibTorch; we promise no stable ABI, but that
// a mismatch is found before any code of the plugin runs, and is explained in one line.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loom {

struct Descriptor {
  int format = 0;
  std::string name;
  std::string version;
  std::vector<std::string> provides;                       // "encoder:vit"
  std::map<std::string, std::string, std::less<>> fields;  // all of them, the three above included

  std::string field(std::string_view key) const;  // "" when absent
  std::string label() const { return name + " " + version; }
  bool offers(std::string_view kind_and_name) const;
};

// Searches bytes for a descriptor; text that only looks like one (the magic in a debugger's strings, say) is passed
// over.
std::optional<Descriptor> find_descriptor(std::string_view bytes);
// Reads a file; nothing when it holds no descriptor. UserError when it cannot be read.
std::optional<Descriptor> read_descriptor(const std::string& path);
// What this program was built with, as a descriptor.
const Descriptor& core_descriptor();
// One line about the first difference that forbids loading, or nothing when the plugin fits.
std::optional<std::string> explain_mismatch(const Descriptor& plugin, const std::string& file, const Descriptor& core);

}  // namespace loom
