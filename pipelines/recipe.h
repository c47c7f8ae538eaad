#pragma once
// A recipe: the whole YAML file after overrides, interpolation, defaults and validation, including the parts whose
// schema belongs to plugins and data sources. All mistakes of a file are reported together; nothing is constructed
// here.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/model/component_spec.h"
#include "plugins/loader/plugin_loader.h"

namespace loom {

struct ComponentRecipe {
  std::string name;  // "encoders.image", "backbone"
  const ComponentSpec* spec = nullptr;
  ConfigValue config;  // validated by the plugin's schema; holds "plugin" too
};

struct Recipe {
  std::string file;
  ConfigValue tree;                                             // with all defaults: what recipe.resolved.yaml holds
  std::map<std::string, ComponentRecipe> encoders, connectors;  // by modality
  ComponentRecipe backbone;
  std::vector<std::string> frozen;  // component names and prefixes under model.tune

  const std::string& name() const { return tree.get_string("name"); }
  const ConfigValue& model() const { return tree.at("model"); }
  const ConfigValue& data() const { return tree.at("data"); }
  const ConfigValue& train() const { return tree.at("train"); }
  const ConfigValue& eval() const { return tree.at("eval"); }
  const ConfigValue& checkpoint() const { return tree.at("checkpoint"); }
};

// The schema of everything that is not a plugin's or a source's own.
Schema recipe_schema();

// Reads, overrides, validates. UserError with every mistake of the file and a count; opens the plugins that the recipe
// names.
Recipe load_recipe(const std::string& file, const std::vector<std::string>& overrides, PluginLoader& plugins);

}  // namespace loom
