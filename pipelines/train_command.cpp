// `omniloom train`: its flags. The run itself is in training_run.
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "pipelines/cli.h"
#include "pipelines/training_run.h"

namespace loom {
namespace {

constexpr int kMostThreadRanks = 64;

int check_and_train(TrainFlags flags) {
  if (flags.resume.empty() && flags.recipe.empty())
    throw UserError("train needs a recipe: omniloom train recipe.yaml, or --resume RUN");
  if (!flags.resume.empty() && (!flags.run.empty() || flags.replace))
    throw UserError("--resume goes without --run and --replace");
  LOOM_CHECK_USER(flags.loopback >= 1 && flags.loopback <= kMostThreadRanks, "--loopback ", flags.loopback,
                  ": expected a number of ranks from 1 to ", kMostThreadRanks);
  if (!flags.resume.empty() && !flags.recipe.empty()) {
    // With --resume the recipe is the run's own; what stands first is then an override.
    LOOM_CHECK_USER(flags.recipe.find('=') != std::string::npos, "--resume takes the recipe from the run; leave out '",
                    flags.recipe, "'");
    flags.overrides.insert(flags.overrides.begin(), flags.recipe);
    flags.recipe.clear();
  }
  return train(flags);
}

}  // namespace

void add_train_command(CLI::App& root, Command& run) {
  CLI::App* command =
      root.add_subcommand("train", "train from a recipe; any recipe key can be set: train.lr=1e-4, --train.lr 1e-4");
  const auto flags = std::make_shared<TrainFlags>();
  command->add_option("recipe", flags->recipe, "recipe.yaml");
  command->add_option("--run", flags->run, "run folder; default runs/NAME-N");
  command->add_option("--resume", flags->resume, "go on with the newest complete checkpoint of this run");
  command->add_flag("--replace", flags->replace, "empty the --run folder if it holds an earlier run");
  command->add_option("--loopback", flags->loopback,
                      "N ranks as threads of this process, to test and try layouts; not faster than one rank");
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return check_and_train(*flags); };
  });
}

}  // namespace loom
