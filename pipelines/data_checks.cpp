#include "pipelines/data_checks.h"

#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

using Items = std::vector<ConfigValue>;

const Items& sources_of(const ConfigValue& data, const char* list) {
  static const Items none;
  const ConfigValue* found = data.find(list);
  return found != nullptr && found->is_list() ? found->items() : none;
}

// A modality that was not asked for is the default of a source that may have no media at all.
void check_modality(const ConfigValue& source, const std::vector<std::string>& encoders, Mistakes& mistakes) {
  const ConfigValue* modality = source.find("modality");
  if (modality == nullptr || modality->kind() != ConfigValue::Kind::string || modality->mark.file == "default") return;
  const std::string& name = modality->as_string();
  for (const std::string& encoder : encoders) {
    if (encoder == name) return;
  }
  mistakes.add(modality->mark, modality->path,
               concat("no encoder ", quote_text(name), did_you_mean(name, encoders),
                      encoders.empty() ? " (the model has none)" : concat(" (there is: ", join(encoders, ", "), ")")));
}

}  // namespace

void check_feeding(const ConfigValue& data, const ConfigValue& model, Mistakes& mistakes) {
  std::vector<std::string> encoders;
  const ConfigValue* section = model.find("encoders");
  if (section != nullptr && section->is_map()) {
    for (const auto& [modality, encoder] : section->entries()) encoders.push_back(modality);
  }
  for (const char* list : {"train", "eval"}) {
    for (const ConfigValue& source : sources_of(data, list)) check_modality(source, encoders, mistakes);
  }
  std::set<std::string> given;
  for (const ConfigValue& source : sources_of(data, "train")) {
    const ConfigValue* modality = source.find("modality");
    if (modality == nullptr || modality->kind() != ConfigValue::Kind::string) return;  // of another mistake
    given.insert(modality->as_string());
  }
  if (given.empty()) return;
  for (const std::string& modality : encoders) {
    if (given.count(modality) > 0) continue;
    const ConfigValue& encoder = section->at(modality);
    mistakes.add(encoder.where(), encoder.path,
                 concat("nothing feeds it: the sources of data.train give ", join({given.begin(), given.end()}, ", "),
                        "; add one with modality: ", modality, ", or leave out the encoder and its connector"));
  }
}

}  // namespace loom
