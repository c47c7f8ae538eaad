#include "core/data/source_options.h"

#include <filesystem>
#include <vector>

#include "core/base/text.h"

namespace loom {

void add_name_field(Schema& schema) {
  schema.string("name", "", "what it is called in data.mix, metrics and messages; empty = its place, as train.0");
}

void add_source_fields(Schema& schema) {
  add_name_field(schema);
  schema.string("modality", "image", "name of the encoder that takes the pictures");
  schema.choice("alpha", "drop", {"drop", "white"}, "transparent pixels: alpha dropped, or laid over white");
  schema.integer("max_pixels", 0, {1, 1e12}, "larger pictures are skipped; absent = data.max_pixels").optional();
  schema.integer("limit", 0, {0, 1e12}, "use only the first so many; 0 = all");
  schema.number("weight", 0, {1e-6, 1e6}, "share of samples among sources; absent = by size").optional();
}

SourceOptions read_source_options(const ConfigValue& config) {
  const auto given = [&](const char* key) {
    const ConfigValue* value = config.find(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  };
  SourceOptions out;
  out.limit = config.get_int("limit");
  if (const ConfigValue* weight = given("weight")) out.weight = weight->as_number();
  out.modality = config.get_string("modality");
  out.pictures.alpha_on_white = config.get_string("alpha") == "white";
  if (const ConfigValue* pixels = given("max_pixels")) out.pictures.max_pixels = pixels->as_int();
  return out;
}

std::string near_path(const std::string& path) {
  constexpr size_t kLooked = 10000;
  std::filesystem::path whole(path);
  if (!whole.has_filename()) whole = whole.parent_path();  // "pictures/"
  const std::filesystem::path folder = whole.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error), end;
  for (; !error && entry != end && names.size() < kLooked; entry.increment(error))
    names.push_back(entry->path().filename().string());
  const std::optional<std::string> near = nearest(whole.filename().string(), names);
  return near ? "; did you mean '" + (folder / *near).string() + "'?" : "";
}

}  // namespace loom
