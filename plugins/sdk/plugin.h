#pragma once
// The one header that a plugin's plugin.cpp includes:
//
//   OMNILOOM_PLUGIN(vit, "0.1.0", "encoder:vit") { registrar.add(vit_spec()); }
//
// The macro makes two things. A descriptor: constant text in an ELF section of its own, which the core reads without
// opening the library (an allocated section survives strip; a footer appended to the file would not). And one C
// function, suffixed with the plugin's name so that several plugins can be linked into one program. There is no static
// registration: a constructor that throws inside dlopen takes the process down. NAME is a C identifier; PROVIDES lists
// kind:name, separated by commas.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "plugins/sdk/fingerprint.h"
#include "plugins/sdk/registrar.h"

namespace loom {

inline constexpr uint32_t kPluginFormat = 1;

// What the entry function returns: plain data, so that the first thing that crosses the border is no C++ object.
struct PluginEntry {
  uint32_t size = sizeof(PluginEntry);
  uint32_t format = kPluginFormat;
  const char* name = nullptr;
  const char* version = nullptr;
  void (*register_plugin)(Registrar& registrar) = nullptr;
};

using PluginEntryFunction = const PluginEntry*() noexcept;

namespace sdk {

// The descriptor's text, put together by the compiler.
struct DescriptorText {
  char text[1024] = {};
  size_t length = 0;

  constexpr void add(std::string_view part) {
    for (const char c : part) text[length++] = c;  // does not compile when too long
  }
  constexpr void add_number(uint64_t value) {
    if (value >= 10) add_number(value / 10);
    text[length++] = static_cast<char>('0' + value % 10);
  }
  constexpr void field(std::string_view key, std::string_view value) {
    add(key);
    add("=");
    add(value);
    add(";");
  }
};

// The sizes of a few types that cross the border: a cheap probe for builds that drifted apart.
constexpr void add_sizes(DescriptorText& out) {
  out.add("sizes=");
  for (const size_t size :
       {sizeof(PluginEntry), sizeof(ComponentSpec), sizeof(Declarations), sizeof(UnitContext), sizeof(Tensor)}) {
    out.add_number(size);
    out.add(".");
  }
  out.add(";");
}

// Magic, format number, identity, fingerprint, end mark. Values hold neither ';' nor '='.
consteval DescriptorText describe(std::string_view name, std::string_view version, std::string_view provides) {
  DescriptorText out;
  out.add("\x02omniloom-plugin\x03");
  out.add_number(kPluginFormat);
  out.add(";");
  out.field("name", name);
  out.field("version", version);
  out.field("provides", provides);
  out.add(OMNILOOM_FINGERPRINT);
  add_sizes(out);
  out.add("end=1;");
  return out;
}

}  // namespace sdk
}  // namespace loom

#define OMNILOOM_PLUGIN(NAME, VERSION, PROVIDES)                                                                       \
  static void omniloom_register_##NAME(::loom::Registrar& registrar);                                                  \
  extern const ::loom::sdk::DescriptorText omniloom_descriptor_##NAME;                                                 \
  __attribute__((used, retain,                                                                                         \
                 section("omniloom_plugin"))) constinit const ::loom::sdk::DescriptorText omniloom_descriptor_##NAME = \
      ::loom::sdk::describe(#NAME, VERSION, PROVIDES);                                                                 \
  extern "C" __attribute__((visibility("default"))) const ::loom::PluginEntry* omniloom_plugin_##NAME() noexcept {     \
    static constexpr ::loom::PluginEntry entry{                                                                        \
        .name = #NAME, .version = VERSION, .register_plugin = &omniloom_register_##NAME};                              \
    return &entry;                                                                                                     \
  }                                                                                                                    \
  static void omniloom_register_##NAME([[maybe_unused]] ::loom::Registrar& registrar)
