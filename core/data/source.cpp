// The table of source types, and what all sources share.
#include "core/data/source.h"

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/data/idx_source.h"

namespace loom {
namespace {

struct SourceType {
  const char* name;
  Schema (*schema)();
  std::unique_ptr<Source> (*make)(const ConfigValue& config, std::string name);
};

constexpr SourceType kTypes[] = {{"idx", idx_schema, make_idx_source}};

const SourceType& find_type(const ConfigValue& type) {
  const std::string& name = type.as_string();
  for (const SourceType& row : kTypes) {
    if (name == row.name) return row;
  }
  throw UserError(concat(said_at(type), "no source type ", quote_text(name), did_you_mean(name, source_types()),
                         " (there is: ", join(source_types(), ", "), ")"));
}

}  // namespace

Source::~Source() = default;

std::vector<std::string> Source::modalities() const { return {}; }

double Source::weight() const { return 0; }

uint64_t Source::sample_key(int64_t index) const { return mix_hash(hash_name(name()), static_cast<uint64_t>(index)); }

std::string Source::sample_name(int64_t index) const { return concat(name(), "#", index); }

std::vector<std::string> source_types() {
  std::vector<std::string> out;
  for (const SourceType& row : kTypes) out.emplace_back(row.name);
  return out;
}

Schema source_schema(const ConfigValue& type) { return find_type(type).schema(); }

std::unique_ptr<Source> make_source(const ConfigValue& config, int number) {
  // "data.train.0" in a recipe is called "train.0"; a value from elsewhere gets its type and number.
  constexpr std::string_view kSection = "data.";
  std::string name = concat(config.at("type").as_string(), ".", number);
  if (config.path.rfind(kSection, 0) == 0) name = config.path.substr(kSection.size());
  return find_type(config.at("type")).make(config, std::move(name));
}

std::string said_at(const ConfigValue& value) {
  std::string out = value.mark.str();
  if (!out.empty()) out += ": ";
  return value.path.empty() ? out : out + value.path + ": ";
}

}  // namespace loom
