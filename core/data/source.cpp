// The table of source types, and what all sources share.
#include "core/data/source.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/data/chat_source.h"
#include "core/data/folder_source.h"
#include "core/data/idx_source.h"
#include "core/data/source_options.h"

namespace loom {
namespace {

struct SourceType {
  const char* name;
  Schema (*schema)();
  std::unique_ptr<Source> (*make)(const ConfigValue& config, std::string name);
};

constexpr SourceType kTypes[] = {{"chat", chat_schema, make_chat_source},
                                 {"folder", folder_schema, make_folder_source},
                                 {"idx", idx_schema, make_idx_source}};

const SourceType& find_type(const ConfigValue& type) {
  const std::string& name = type.as_string();
  for (const SourceType& row : kTypes) {
    if (name == row.name) return row;
  }
  throw UserError(concat(said_at(type), "no source type ", quote_text(name), did_you_mean(name, source_types()),
                         " (there is: ", join(source_types(), ", "), ")"));
}

std::string type_of_path(const ConfigValue& path) {
  const std::string text = path.text();
  if (is_folder(text)) return "folder";
  std::string ending = std::filesystem::path(text).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (ending == ".jsonl" || ending == ".json" || ending == ".ndjson") return "chat";
  std::error_code error;
  const bool exists = std::filesystem::exists(text, error);
  throw UserError(concat(
      said_at(path), text,
      exists ? concat(": its name does not tell what it holds; set type (there is: ", join(source_types(), ", "), ")")
             : concat(": no such file or folder", near_path(text))));
}

}  // namespace

Source::~Source() = default;

RawSample Source::read_without_media(int64_t index) const {
  RawSample out = read(index);
  std::erase_if(out.parts, [](const SamplePart& part) { return part.kind == SamplePart::Kind::media; });
  return out;
}

std::vector<std::string> Source::modalities() const { return {}; }

double Source::weight() const { return 0; }

uint64_t Source::sample_key(int64_t index) const { return mix_hash(hash_name(name()), static_cast<uint64_t>(index)); }

std::string Source::sample_name(int64_t index) const { return concat(name(), "#", index); }

uint64_t Source::sample_identity(int64_t index) const { return sample_key(index); }

ConfigValue source_type(const ConfigValue& entry) {
  if (const ConfigValue* type = entry.find("type"); type != nullptr && !type->is_null()) return *type;
  const ConfigValue* path = entry.find("path");
  if (path == nullptr || path->is_null() || path->is_list() || path->is_map()) {
    std::string hint;
    for (const auto& [key, value] : entry.entries()) {
      if (hint.empty() && key != "path") hint = did_you_mean(key, {"type", "path"});
    }
    throw UserError(concat(said_at(entry), "expected path (a .jsonl or .json file, or a folder of pictures), or type (",
                           join(source_types(), ", "), ")", hint));
  }
  ConfigValue type = ConfigValue::string(type_of_path(*path));
  type.mark = path->mark;
  type.key_mark = path->key_mark;
  type.path = child_path(entry.path, "type");
  return type;
}

std::vector<std::string> source_types() {
  std::vector<std::string> out;
  for (const SourceType& row : kTypes) out.emplace_back(row.name);
  return out;
}

Schema source_schema(const ConfigValue& type) { return find_type(type).schema(); }

std::string source_name(const ConfigValue& config) {
  constexpr std::string_view kSection = "data.";
  const ConfigValue* given = config.find("name");
  if (given != nullptr && !given->is_null() && !given->text().empty()) return given->text();
  return config.path.rfind(kSection, 0) == 0 ? config.path.substr(kSection.size()) : "";
}

std::unique_ptr<Source> make_source(const ConfigValue& config, int number) {
  std::string name = source_name(config);
  if (name.empty()) name = concat(config.at("type").as_string(), ".", number);  // of no recipe
  return find_type(config.at("type")).make(config, std::move(name));
}

std::string said_at(const ConfigValue& value) {
  std::string out = value.mark.str();
  if (!out.empty()) out += ": ";
  return value.path.empty() ? out : out + value.path + ": ";
}

}  // namespace loom
