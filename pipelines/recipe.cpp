#include "pipelines/recipe.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/overrides.h"
#include "core/config/yaml_reader.h"
#include "core/data/loader.h"
#include "core/data/source.h"
#include "core/train/lr_schedule.h"
#include "core/train/optimizer.h"
#include "pipelines/data_checks.h"
#include "pipelines/mix_section.h"
#include "pipelines/parallel_section.h"
#include "pipelines/section_files.h"

namespace loom {
namespace {

constexpr double kMany = 1e12;

Schema component_schema() {
  Schema s;
  s.string("plugin", "", "type name of the plugin, or a path to its .omniloom.so").required().open();
  return s;
}

Schema source_list_schema() {
  Schema s;
  s.string("type", "", "kind of source; may be left out when path tells: " + join(source_types(), ", ")).optional();
  s.open();
  return s;
}

Schema model_schema() {
  Schema s;
  s.map_of("encoders", component_schema(), "one per modality");
  s.map_of("connectors", component_schema(), "one per encoder, under the same name");
  s.section("backbone", component_schema(), "the language model").required();
  s.any("tune", "per component: full (default) or frozen, e.g. {encoders.image: frozen}");
  return s;
}

Schema data_schema() {
  Schema s;
  s.string("tokenizer", "bytes", "bytes, or the path of a tokenizer.json");
  s.integer("budget", 4096, {1, kMany}, "tokens per lane and microbatch, packed");
  s.list_of("train", source_list_schema(), "sources of training samples");
  s.list_of("eval", source_list_schema(), "sources of held-out samples");
  s.list_of("mix", mix_stage_schema(), "shares of the training sources, in stages; absent = by their sizes or weights");
  s.number("hold_out", 0, {0, 0.5}, "share of every training source that is kept for evaluation instead of data.eval");
  s.choice("over_long", "error", {"error", "drop", "shrink_media"},
           "samples above the budget: stop, leave them out, or make their pictures smaller");
  s.choice("unsupervised", "skip", {"skip", "keep", "error"}, "samples without a token to learn");
  s.integer("max_pixels", 100'000'000, {1, kMany}, "larger pictures are skipped; a source may say its own");
  s.boolean("shuffle", true, "a new order every epoch");
  s.number("max_skip_rate", 0.05, {0, 1}, "stop when more samples than this share cannot be used");
  s.integer("workers", 2, {1, 256}, "threads that prepare samples");
  return s;
}

Schema train_schema() {
  Schema s;
  s.integer("steps", 1000, {0, kMany}, "optimizer steps of the run");
  s.string("batch", "64 samples", "global: 'N samples' or 'N tokens' per step");
  add_schedule_fields(s);
  add_optimizer_fields(s);
  s.number("clip", 1.0, {0, kMany}, "global gradient norm; 0 = off");
  s.choice("precision", "fp32", {"fp32", "bf16", "fp64"}, "compute dtype; master weights are fp32 (fp64 for fp64)");
  s.string("device", "auto", "auto, cpu, cuda or cuda:N; auto = the first GPU if one answers");
  s.boolean("recompute", false, "run units again in backward instead of keeping their activations");
  s.integer("seed", 0, {0, kMany}, "of weights, order and dropout");
  s.integer("threads", 0, {0, 1024}, "compute threads; 0 = all cores of this rank");
  return s;
}

Schema eval_schema() {
  Schema s;
  s.integer("every", 0, {0, kMany}, "steps between evaluations; 0 = only by `omniloom eval`");
  s.integer("samples", 1000, {0, kMany}, "held-out samples per evaluation while training; 0 = all");
  s.choice("metric", "exact_match", {"exact_match", "token_accuracy", "loss"},
           "what a run is judged by; only exact_match generates (greedily)");
  s.integer("max_new_tokens", 64, {1, 1e6}, "longest generated answer");
  s.integer("batch", 250, {1, 1e6}, "most samples in memory at once; passes hold at most data.budget tokens");
  return s;
}

// Frozen prefixes from nested or dotted keys: {encoders: {image: frozen}}.
void read_tune(const ConfigValue& value, const std::string& prefix, const std::vector<std::string>& components,
               std::vector<std::string>& frozen, Mistakes& mistakes) {
  for (const auto& [key, child] : value.entries()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (child.is_map()) {
      read_tune(child, name, components, frozen, mistakes);
      continue;
    }
    const std::string mode = child.text();
    if (mode != "full" && mode != "frozen") {
      mistakes.add(child.mark, child.path, concat("expected 'full' or 'frozen', found '", mode, "'"));
    }
    bool known = false;
    for (const std::string& component : components)
      known = known || name == component || name.rfind(component + ".", 0) == 0;
    if (!known)
      mistakes.add(child.key_mark, child.path, concat("no component '", name, "'", did_you_mean(name, components)));
    if (mode == "frozen") frozen.push_back(name);
  }
}

// Replaces `value` by its validated form.
void validate_component(ConfigValue& value, ComponentKind kind, ComponentRecipe& out, PluginLoader& plugins,
                        Mistakes& mistakes) {
  const ConfigValue* plugin = value.find("plugin");
  if (plugin == nullptr || plugin->is_null()) return;  // already reported
  const std::string& name = plugin->as_string();
  std::string type = name;
  if (name.find('/') != std::string::npos) {
    const Descriptor& file = plugins.load(plugins.add_path(name, plugin->mark));
    const std::string prefix = concat(kind_name(kind), ":");
    type.clear();
    for (const std::string& offer : file.provides) {
      if (offer.rfind(prefix, 0) == 0) type = offer.substr(prefix.size());
    }
    if (type.empty()) {
      mistakes.add(plugin->mark, plugin->path,
                   concat(name, " provides ", join(file.provides, ", "), ", no ", kind_name(kind)));
      return;
    }
  }
  out.spec = plugins.find(kind, type, plugin->mark, out.name, mistakes);
  if (out.spec == nullptr) return;
  ConfigValue rest = value;
  rest.erase("plugin");
  ConfigValue checked = validate(rest, out.spec->schema, mistakes);
  ConfigValue whole = ConfigValue::map();
  whole.mark = value.mark;
  whole.key_mark = value.key_mark;
  whole.path = value.path;
  whole.set("plugin", *plugin);
  for (const auto& [key, child] : checked.entries()) whole.set(key, child);
  value = std::move(whole);
  out.config = value;
}

// Replaces each entry by its validated form, with its type written out.
void validate_sources(ConfigValue& list, Mistakes& mistakes) {
  if (!list.is_list()) return;
  for (ConfigValue& item : list.items()) {
    if (!item.is_map()) continue;
    try {
      const ConfigValue type = source_type(item);
      const Schema schema = source_schema(type);
      item.set("type", type);
      item = validate(item, schema, mistakes);
    } catch (const UserError& error) {
      mistakes.add_line(error.what());
    }
  }
}

void check_hold_out(const ConfigValue& data, Mistakes& mistakes) {
  const ConfigValue &share = data.at("hold_out"), &eval = data.at("eval");
  if (share.as_number() > 0 && eval.is_list() && !eval.items().empty())
    mistakes.add(share.where(), share.path, "data.eval is given, too; expected one of them");
}

}  // namespace

Schema recipe_schema() {
  Schema s;
  s.string("name", "", "of the run; runs go to runs/NAME-1, -2, ...").required();
  s.list("plugins", FieldType::string, "files or folders with plugins of your own");
  s.section("model", model_schema(), "encoders, connectors, backbone").required();
  s.section("data", data_schema(), "what is trained on").required();
  s.section("train", train_schema(), "how").required();
  s.section("eval", eval_schema(), "held-out evaluation");
  Schema checkpoint;
  checkpoint.integer("every", 200, {0, kMany}, "steps between checkpoints; 0 = only at the end");
  checkpoint.integer("keep", 3, {0, kMany}, "newest checkpoints that stay; 0 = all");
  checkpoint.boolean("async", true, "write while training goes on, from a copy in host memory");
  s.section("checkpoint", checkpoint, "saving");
  s.section("parallel", parallel_schema(), "how each component lies on several ranks");
  return s;
}

Recipe load_recipe(const std::string& file, const std::vector<std::string>& overrides, PluginLoader& plugins) {
  Mistakes mistakes;
  ConfigValue raw = read_yaml_file(file, &mistakes);
  const Schema schema = recipe_schema();
  const auto insert_files = [&](ConfigValue& tree) {
    if (!insert_section_files(tree, schema, mistakes)) mistakes.throw_if_any(file);
  };
  insert_files(raw);
  apply_overrides(raw, overrides, insert_files);
  Recipe recipe;
  recipe.file = file;
  recipe.tree = validate(raw, schema, mistakes);
  if (recipe.tree.find("model") == nullptr || !recipe.tree.at("model").is_map()) mistakes.throw_if_any(file);

  if (const ConfigValue* paths = recipe.tree.find("plugins")) {
    for (const ConfigValue& path : paths->items()) {
      if (path.kind() == ConfigValue::Kind::string) plugins.add_path(path.as_string(), path.mark);
    }
  }
  ConfigValue& model = *recipe.tree.find("model");
  std::vector<std::string> components{"backbone"};
  const auto each = [&](const char* group, ComponentKind kind, std::map<std::string, ComponentRecipe>& out) {
    ConfigValue* section = model.find(group);
    if (section == nullptr || !section->is_map()) return;
    for (auto& [modality, value] : section->entries()) {
      ComponentRecipe& component = out[modality];
      component.name = concat(group, ".", modality);
      components.push_back(component.name);
      if (value.is_map()) validate_component(value, kind, component, plugins, mistakes);
    }
  };
  each("encoders", ComponentKind::encoder, recipe.encoders);
  each("connectors", ComponentKind::connector, recipe.connectors);
  recipe.backbone.name = "backbone";
  if (ConfigValue* backbone = model.find("backbone"); backbone != nullptr && backbone->is_map()) {
    validate_component(*backbone, ComponentKind::backbone, recipe.backbone, plugins, mistakes);
  }
  for (const auto& [modality, encoder] : recipe.encoders) {
    if (recipe.connectors.count(modality) == 0) {
      const ConfigValue& at = model.at("encoders").at(modality);
      mistakes.add(at.key_mark, at.path, concat("has no connector; add model.connectors.", modality));
    }
  }
  for (const auto& [modality, connector] : recipe.connectors) {
    if (recipe.encoders.count(modality) == 0) {
      const ConfigValue& at = model.at("connectors").at(modality);
      mistakes.add(at.key_mark, at.path, concat("has no encoder; add model.encoders.", modality));
    }
  }
  if (const ConfigValue* tune = model.find("tune"); tune != nullptr && tune->is_map()) {
    read_tune(*tune, "", components, recipe.frozen, mistakes);
  }
  if (const ConfigValue* parallel = recipe.tree.find("parallel"); parallel != nullptr && parallel->is_map())
    check_parallel_names(*parallel, components, mistakes);
  if (ConfigValue* data = recipe.tree.find("data"); data != nullptr && data->is_map()) {
    validate_sources(*data->find("train"), mistakes);
    validate_sources(*data->find("eval"), mistakes);
    check_hold_out(*data, mistakes);
    check_feeding(*data, model, mistakes);
    check_mix(*data, mistakes);
  }
  if (const ConfigValue* train = recipe.tree.find("train"); train != nullptr && train->find("batch") != nullptr) {
    try {
      parse_batch(train->at("batch"));
    } catch (const UserError& error) {
      mistakes.add_line(error.what());
    }
  }
  mistakes.throw_if_any(file);
  return recipe;
}

}  // namespace loom
