#include "pipelines/section_files.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/config/yaml_reader.h"
#include "core/data/source_options.h"

namespace loom {
namespace {

// "command line" has no folder, and so is the working folder.
std::string path_of(const ConfigValue& section) {
  const std::filesystem::path path(section.as_string());
  const std::filesystem::path folder = std::filesystem::path(section.mark.file).parent_path();
  return (path.is_absolute() ? path : folder / path).lexically_normal().string();
}

ConfigValue read_section(const ConfigValue& section, Mistakes& mistakes) {
  const std::string path = path_of(section);
  const char* expected = "expected a map ('key: value' lines), or the path of a YAML file that holds one";
  if (section.as_string().empty() || !is_file(path)) {
    const char* problem = is_folder(path) ? ": is a folder; " : ": no such file; ";
    mistakes.add(section.mark, section.path, concat(path, problem, expected, near_path(path)));
    return {};
  }
  ConfigValue out;
  try {
    out = read_yaml_file(path, &mistakes);
  } catch (const UserError& error) {
    mistakes.add_line(error.what());
    return {};
  }
  if (!out.is_map()) {
    mistakes.add(out.mark, section.path, concat(expected, ", found ", out.found()));
    return {};
  }
  out.place(section.path);
  return out;
}

}  // namespace

bool insert_section_files(ConfigValue& recipe, const Schema& schema, Mistakes& mistakes) {
  bool whole = true;
  if (!recipe.is_map()) return whole;
  for (const Field& field : schema.fields()) {
    ConfigValue* section = field.type == FieldType::section ? recipe.find(field.name) : nullptr;
    if (section == nullptr || section->kind() != ConfigValue::Kind::string) continue;
    ConfigValue content = read_section(*section, mistakes);
    if (content.is_null()) {
      whole = false;
      recipe.erase(field.name);
    } else {
      *section = std::move(content);
    }
  }
  return whole;
}

}  // namespace loom
