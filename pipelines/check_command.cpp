// `omniloom check`: everything that can be wrong with a recipe, without training: keys, plugins, data files, shapes of
// the model.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/text.h"
#include "core/config/yaml_writer.h"
#include "pipelines/cli.h"
#include "pipelines/job.h"

namespace loom {
namespace {

struct CheckFlags {
  std::string recipe;
  bool resolved = false;
  std::vector<std::string> overrides;
};

int check(const CheckFlags& flags) {
  const Job job = make_job(flags.recipe, flags.overrides);
  if (flags.resolved) {
    std::fputs(write_yaml(job.recipe.tree).c_str(), stdout);
    return 0;
  }
  const auto describe = [&](const char* list) {
    const ConfigValue& data = job.recipe.data();
    if (data.at(list).items().empty() && data.get_number("hold_out") == 0) return;
    for (const auto& source : job.sources(list)) {
      std::printf("%-8s%s: %s samples\n", list, source->name().c_str(), with_commas(source->size()).c_str());
    }
  };
  std::printf("model   %s\n", model_line(job).c_str());
  describe("train");
  describe("eval");
  std::printf("%s: ok\n", flags.recipe.c_str());
  return 0;
}

}  // namespace

void add_check_command(CLI::App& root, Command& run) {
  CLI::App* command = root.add_subcommand("check", "validate a recipe, its plugins and its data; nothing is trained");
  const auto flags = std::make_shared<CheckFlags>();
  command->add_option("recipe", flags->recipe, "recipe.yaml")->required();
  command->add_flag("--resolved", flags->resolved, "print the recipe with all defaults and overrides");
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return check(*flags); };
  });
}

}  // namespace loom
