// `omniloom train`: its flags. The run itself is in training_run.
#include <cstdlib>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/comm/rank_place.h"
#include "pipelines/cli.h"
#include "pipelines/launcher.h"
#include "pipelines/machine.h"
#include "pipelines/training_run.h"

namespace loom {
namespace {

constexpr int kMostThreadRanks = 64;

// "--profile trace.json" would be taken for a recipe or an override.
void check_profile(const TrainFlags& flags) {
  LOOM_CHECK_USER(flags.profile || !flags.profile_steps.has_value(), "--profile-steps goes with --profile");
  if (!flags.profile) return;
  std::vector<std::string> words = flags.overrides;
  words.push_back(flags.recipe);
  for (const std::string& word : words) {
    LOOM_CHECK_USER(!word.ends_with(".json") || word.find('=') != std::string::npos, "'", word,
                    "' is no recipe; a file for the profile is written as --profile=", word);
  }
}

// Said before there are ranks. A shell that is the one task of a Slurm step may start its own.
void check_nproc(int count) {
  LOOM_CHECK_USER(count >= 1 && count <= kMostProcesses, "--nproc ", count, ": expected a number of ranks from 1 to ",
                  kMostProcesses);
  const RankPlace place = place_from_environment();
  LOOM_CHECK_USER(place.launcher == "alone" || (place.launcher == "slurm" && place.world == 1), "--nproc ", count, ": ",
                  place.launcher, " has started this process as a rank; leave it out");
  if (const int cores = this_machine().cores; count > cores)
    log_warn("--nproc ", count, ": more ranks than the ", cores, cores == 1 ? " core" : " cores",
             " of this machine; they will wait for each other");
}

int check_and_train(TrainFlags flags, std::optional<int> nproc) {
  if (flags.resume.empty() && flags.recipe.empty())
    throw UserError("train needs a recipe: omniloom train recipe.yaml, or --resume RUN");
  if (!flags.resume.empty() && (!flags.run.empty() || flags.replace))
    throw UserError("--resume goes without --run and --replace");
  LOOM_CHECK_USER(flags.loopback >= 1 && flags.loopback <= kMostThreadRanks, "--loopback ", flags.loopback,
                  ": expected a number of ranks from 1 to ", kMostThreadRanks);
  check_profile(flags);
  if (!flags.resume.empty() && !flags.recipe.empty()) {
    // With --resume the recipe is the run's own; what stands first is then an override.
    LOOM_CHECK_USER(flags.recipe.find('=') != std::string::npos, "--resume takes the recipe from the run; leave out '",
                    flags.recipe, "'");
    flags.overrides.insert(flags.overrides.begin(), flags.recipe);
    flags.recipe.clear();
  }
  // Kineto's own lines say nothing to people. Here, before there are threads.
  if (flags.profile) ::setenv("KINETO_LOG_LEVEL", "99", 0);
  if (nproc.has_value()) {
    check_nproc(*nproc);
    if (*nproc > 1) return launch_ranks(*nproc, arguments_of_ranks());
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
  const auto nproc = std::make_shared<int>(1);
  CLI::Option* processes = command->add_option("--nproc", *nproc, "N ranks as processes of this machine");
  processes->excludes("--loopback");
  const auto profile = std::make_shared<std::string>(), profile_steps = std::make_shared<std::string>();
  CLI::Option* asked =
      command->add_flag("--profile", *profile,
                        "record some steps for chrome://tracing or Perfetto, into trace.json in the run "
                        "folder or into FILE: --profile=FILE");
  command->add_option("--profile-steps", *profile_steps, "the steps that --profile records, FIRST:LAST; default 3:5");
  command->allow_extras();
  command->callback([=, &run] {
    flags->overrides = command->remaining();
    flags->profile = asked->count() > 0;
    if (*profile != "true") flags->profile_file = *profile;  // "true" is the flag without a value
    const std::optional<int> ranks = processes->count() > 0 ? std::optional<int>(*nproc) : std::nullopt;
    run = [flags, ranks, profile_steps] {
      if (!profile_steps->empty()) flags->profile_steps = parse_profile_steps(*profile_steps);
      return check_and_train(*flags, ranks);
    };
  });
}

}  // namespace loom
