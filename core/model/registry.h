#pragma once
// Name -> spec, with the file that brought it. One per process, handed around by reference; no static registration.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/component_spec.h"

namespace loom {

class Registry {
 public:
  // PluginError naming both files when (kind, name) exists: "encoder 'vit' is provided by both A.so and B.so; keep one
  // or ...".
  void add(ComponentSpec spec, std::string owner);
  const ComponentSpec* find(ComponentKind kind, std::string_view name) const;
  std::vector<std::string> names(ComponentKind kind) const;
  std::string owner(ComponentKind kind, std::string_view name) const;

 private:
  struct Entry {
    ComponentSpec spec;
    std::string owner;
  };
  std::map<std::pair<int, std::string>, Entry, std::less<>> entries_;
};

}  // namespace loom
