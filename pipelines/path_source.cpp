#include "pipelines/path_source.h"

#include "core/data/source_options.h"

namespace loom {
namespace {

const ConfigValue* source_like(const Recipe& recipe, const std::string& type) {
  for (const char* list : {"eval", "train"}) {
    for (const ConfigValue& item : recipe.data().at(list).items()) {
      const ConfigValue* found = item.find("type");
      if (found != nullptr && !found->is_null() && found->as_string() == type) return &item;
    }
  }
  return nullptr;
}

// Is this key about the other source's files, not about how files are read?
bool own_key(const std::string& key) {
  for (const char* own : {"type", "path", "limit", "weight", "media_root", "hold_out"}) {
    if (key == own) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<Source> source_of_path(const std::string& path, int number, const Recipe* like,
                                       const std::string& caption) {
  ConfigValue entry = ConfigValue::map({{"path", ConfigValue::string(path)}});
  const ConfigValue type = source_type(entry);
  entry.set("type", type);
  const ConfigValue* other = like != nullptr ? source_like(*like, type.as_string()) : nullptr;
  if (other != nullptr) {
    for (const auto& [key, value] : other->entries()) {
      if (!own_key(key) && !value.is_null()) entry.set(key, value);
    }
  }
  const bool pictures = type.as_string() != "idx" && entry.find("max_pixels") == nullptr;
  if (like != nullptr && pictures) entry.set("max_pixels", like->data().at("max_pixels"));
  if (!caption.empty()) entry.set("caption", ConfigValue::string(caption));
  Mistakes mistakes;
  ConfigValue config = validate(entry, source_schema(type), mistakes);
  mistakes.throw_if_any(path);
  config.find("path")->path.clear();  // it stands in no file, so messages begin with the path itself
  return make_source(config, number);
}

PictureOptions picture_options(const Recipe& recipe) {
  PictureOptions out;
  for (const ConfigValue& item : recipe.data().at("train").items()) {
    const ConfigValue* alpha = item.find("alpha");
    if (alpha == nullptr || alpha->is_null()) continue;
    out = read_source_options(item).pictures;
    if (item.find("max_pixels") != nullptr) return out;
    break;
  }
  out.max_pixels = recipe.data().get_int("max_pixels");
  return out;
}

}  // namespace loom
