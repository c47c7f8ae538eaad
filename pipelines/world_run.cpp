// What a recipe and a machine get wrong by themselves is told before the ranks meet: every rank then says the same.
#include "pipelines/world_run.h"

#include <ATen/Parallel.h>

#include "core/base/error.h"
#include "core/base/error_words.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/comm/process_world.h"
#include "core/config/yaml_writer.h"
#include "pipelines/agreement.h"
#include "pipelines/layout_checks.h"
#include "pipelines/parallel_section.h"

namespace loom {
namespace {

std::string plugin_lines(const Job& job) {
  std::string out;
  for (const std::string& line : job.plugins->builds()) out += line + "\n";
  return out;
}

int train_together(const TrainFlags& flags, const RankPlace& place, Communicator& comm) {
  std::string folder;
  try {
    TrainingRun run(flags, comm, place);
    folder = run.folder();
    const int code = run.run();
    const ScopedTimeout patience(comm, 0);  // rank 0 may still write its report
    comm.barrier("training: end", world_group(comm.world()));
    return code;
  } catch (const PeerFailed&) {
    throw;
  } catch (const CommError& error) {
    if (folder.empty()) throw;
    throw CommError(concat(error.what(), " · resume: omniloom train --resume ", folder));
  }
}

}  // namespace

int train_in_world(const TrainFlags& flags, const RankPlace& place) {
  // Our own launcher says itself which rank a line is from.
  if (place.launcher != "omniloom") set_log_rank(place.rank, place.world);
  WorldOptions options;
  std::vector<Fact> facts;
  {
    const Job job = read_job(flags.recipe_file(), flags.overrides);
    check_machines(job.recipe, read_layout(job.recipe, place.world), place.local_world);
    at::set_num_threads(threads_per_rank(job.recipe, place.local_world));
    options = read_world_options(job.recipe);
    facts = {{"program", concat("omniloom ", kVersion, "\n", plugin_lines(job))},
             {"recipe", write_yaml(job.recipe.tree)}};
  }
  const std::unique_ptr<Communicator> comm = join_world(place, options);
  try {
    agree(*comm, facts);
    return train_together(flags, place, *comm);
  } catch (const PeerFailed& error) {
    if (place.launcher == "omniloom") return error.exit_code();  // which shows the peer's own words
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    comm->fail(error_words(error));
    throw;
  }
}

}  // namespace loom
