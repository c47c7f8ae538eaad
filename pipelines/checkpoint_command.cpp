// `omniloom checkpoint`: what a run has saved, whether it is whole, and what has changed between two of them.
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

#include "pipelines/checkpoint_diff.h"
#include "pipelines/checkpoint_report.h"
#include "pipelines/cli.h"

namespace loom {

void add_checkpoint_commands(CLI::App& root, Command& run) {
  struct Paths {
    std::string first, second;
  };
  const auto paths = std::make_shared<Paths>();
  CLI::App* checkpoint = root.add_subcommand("checkpoint", "list, verify and compare what runs have saved");
  checkpoint->require_subcommand(1);

  CLI::App* list = checkpoint->add_subcommand("ls", "the checkpoints of a run: step, size, ranks, age, state");
  list->add_option("run", paths->first, "a run folder")->required();
  list->callback([paths, &run] { run = [paths] { return list_checkpoints_of(paths->first, std::cout); }; });

  CLI::App* verify = checkpoint->add_subcommand(
      "verify", "read every file and compare checksums, sizes and boxes; one line per damage, exit code 2");
  verify->add_option("path", paths->first, "a run folder, for all its checkpoints, or one of them")->required();
  verify->callback(
      [paths, &run] { run = [paths] { return verify_checkpoints_at(paths->first, std::cout, std::cerr); }; });

  CLI::App* diff = checkpoint->add_subcommand(
      "diff", "the tensors that differ, bit by bit; exit code 0 when none does, 1 when some do");
  diff->add_option("first", paths->first, "a checkpoint, or a run for its newest")->required();
  diff->add_option("second", paths->second, "another one; the number of ranks may differ")->required();
  diff->callback([paths, &run] {
    run = [paths] { return diff_checkpoints(checkpoint_at(paths->first), checkpoint_at(paths->second), std::cout); };
  });
}

}  // namespace loom
