// `omniloom mix`: another mix for a training that goes on, or the one that it has.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/yaml_reader.h"
#include "core/data/mix_journal.h"
#include "pipelines/cli.h"
#include "pipelines/mix_request.h"
#include "pipelines/mix_section.h"
#include "pipelines/run_folder.h"

namespace loom {
namespace {

struct MixFlags {
  std::string run;
  std::vector<std::string> weights;
};

// "photos=3".
ConfigValue weights_of(const std::vector<std::string>& words) {
  ConfigValue out = ConfigValue::map();
  out.mark.file = "command line";
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    LOOM_CHECK_USER(equals != std::string::npos && equals > 0, quote_text(word),
                    ": expected the name of a source and its weight, as photos=3");
    const std::string name = word.substr(0, equals), number = word.substr(equals + 1);
    LOOM_CHECK_USER(out.find(name) == nullptr, name, ": given twice");
    ConfigValue weight = ConfigValue::string(number);
    try {
      size_t end = 0;
      const double value = std::stod(number, &end);
      if (end == number.size()) weight = ConfigValue::number(value);
    } catch (const std::logic_error&) {  // no number; told where all weights are judged
    }
    weight.mark.file = out.mark.file;
    weight.path = name;
    out.set(name, std::move(weight));
  }
  return out;
}

void show(const MixFlags& flags, const ConfigValue& data, const std::vector<std::string>& names) {
  std::vector<MixSegment> mix = read_mix(data);
  if (mix.empty()) mix.push_back({});
  for (const MixSegment& change : MixJournal(concat(flags.run, "/", kMixJournal), names).changes())
    change_mix(mix, change);
  for (const MixSegment& segment : mix)
    std::printf("from sample %-10s %s\n", with_commas(static_cast<int64_t>(segment.begin)).c_str(),
                shares_text(segment.weights, names).c_str());
  if (has_mix_request(flags.run)) std::printf("asked for   %s, not taken up yet\n", kMixRequest);
  std::printf("again       'data.mix=%s'\n", mix_text(mix, names).c_str());
}

int mix(const MixFlags& flags) {
  const ConfigValue recipe = read_yaml_file(resolved_recipe_of(flags.run));
  const ConfigValue& data = recipe.at("data");
  const std::vector<std::string> names = train_source_names(data);
  if (flags.weights.empty()) {
    show(flags, data, names);
    return 0;
  }
  const std::vector<double> weights = read_weights(weights_of(flags.weights), names);
  write_mix_request(flags.run, names, weights);
  std::printf("%s · taken up before the next step, or when the run is resumed\n", shares_text(weights, names).c_str());
  return 0;
}

}  // namespace

void add_mix_command(CLI::App& root, Command& run) {
  CLI::App* command = root.add_subcommand(
      "mix",
      "change the mix of a training while it goes on: omniloom mix RUN photos=3 text=1; without weights: show it");
  const auto flags = std::make_shared<MixFlags>();
  command->add_option("run", flags->run, "run folder")->required();
  command->add_option("weights", flags->weights,
                      "NAME=WEIGHT of sources of data.train, by their name or place (train.0); a source that is not "
                      "named is left out from then on");
  command->callback([flags, &run] { run = [flags] { return mix(*flags); }; });
}

}  // namespace loom
