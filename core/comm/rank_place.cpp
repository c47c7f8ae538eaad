// The innermost launcher wins: mpirun inside of a Slurm job starts its daemons with srun, so that its ranks see the
// variables of a Slurm step that are not about them.
#include "core/comm/rank_place.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int kMostPort = 65535;
constexpr int kUsualPort = 29500;  // where nothing that the ranks share tells one run from another

int64_t number_of(const std::string& name, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  LOOM_CHECK_USER(problem == std::errc() && stop == end && value >= least && value <= most, name, "=", quote_text(text),
                  ": expected a whole number from ", least, " to ", most);
  return value;
}

class Environment {
 public:
  explicit Environment(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const std::string& name) const {
    std::optional<std::string> value = lookup_(name);
    if (value.has_value() && trim(*value).empty()) return std::nullopt;
    return value;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }

  // The first of these variables that is set: its name.
  std::optional<std::string> first(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (has(name)) return name;
    }
    return std::nullopt;
  }
  std::string needed(const std::vector<std::string>& names, const std::string& because) const {
    const auto name = first(names);
    if (!name.has_value()) throw UserError(concat(because, " without ", names.front(), ": set both or none of them"));
    return *name;
  }
  int64_t number(const std::string& name, int64_t least, int64_t most) const {
    return number_of(name, text(name).value_or(""), least, most);
  }
  std::string shown(const std::string& name) const { return concat(name, "=", text(name).value_or("")); }

 private:
  const Lookup& lookup_;
};

using Names = std::vector<std::string>;

// A rank and the number of ranks, each under the first of its names that is set.
void read_pair(const Environment& environment, const Names& rank_names, const Names& world_names, int& rank,
               int& world) {
  const auto rank_name = environment.first(rank_names), world_name = environment.first(world_names);
  if (!rank_name.has_value()) environment.needed(rank_names, environment.shown(*world_name));
  if (!world_name.has_value()) environment.needed(world_names, environment.shown(*rank_name));
  world = static_cast<int>(environment.number(*world_name, 1, kMostRanks));
  rank = static_cast<int>(environment.number(*rank_name, 0, kMostRanks));
  LOOM_CHECK_USER(rank < world, environment.shown(*rank_name), " with ", environment.shown(*world_name),
                  ": expected a rank from 0 to ", world - 1);
}

void check_local(const Environment& environment, const std::string& name, const RankPlace& place) {
  LOOM_CHECK_USER(place.local_world <= place.world, environment.shown(name), ": more ranks on this machine than the ",
                  place.world, " of the run");
}

int port_of(const Environment& environment, const std::string& name) {
  return static_cast<int>(environment.number(name, 1, kMostPort));
}

// The same on all ranks, below the ports that systems give to outgoing connections.
int port_from(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  constexpr int kFirst = 15000, kCount = 14000;
  return kFirst + static_cast<int>((hash ^ (hash >> 32)) % kCount);
}

// A world of one needs no store.
void finish_alone(RankPlace& place) {
  if (place.world == 1) place.port = 0;
}

RankPlace our_place(const Environment& environment) {
  RankPlace place;
  place.launcher = "omniloom";
  read_pair(environment, {kRankVariable}, {kWorldVariable}, place.rank, place.world);
  const std::string because = environment.shown(kRankVariable);
  for (const char* name : {kLocalRankVariable, kLocalWorldVariable, kAddressVariable, kPortVariable})
    environment.needed({name}, because);
  read_pair(environment, {kLocalRankVariable}, {kLocalWorldVariable}, place.local_rank, place.local_world);
  check_local(environment, kLocalWorldVariable, place);
  place.address = *environment.text(kAddressVariable);
  place.port = port_of(environment, kPortVariable);
  finish_alone(place);
  return place;
}

// Also whatever else speaks the language of torch.distributed's "env://".
RankPlace torchrun_place(const Environment& environment) {
  RankPlace place;
  place.launcher = "torchrun";
  read_pair(environment, {"RANK"}, {"WORLD_SIZE"}, place.rank, place.world);
  if (environment.first({"LOCAL_RANK", "LOCAL_WORLD_SIZE"}).has_value()) {
    read_pair(environment, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, place.local_rank, place.local_world);
    check_local(environment, "LOCAL_WORLD_SIZE", place);
  }
  if (place.world == 1) return place;
  const std::string because = environment.shown("RANK");
  place.address = *environment.text(environment.needed({"MASTER_ADDR"}, because));
  place.port = port_of(environment, environment.needed({"MASTER_PORT"}, because));
  place.store_elsewhere = environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (const auto run = environment.text("TORCHELASTIC_RUN_ID"); run.has_value()) {
    place.store_prefix = concat("omniloom/", *run, "/", environment.text("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  return place;
}

// Where other launchers leave the store to us: rank 0 holds it, on a machine and at a port that all ranks can name.
// `machine`: the one of rank 0, "" when the launcher does not say. `run`: what tells this run from others.
void find_store(const Environment& environment, const std::string& machine, const std::optional<std::string>& run,
                const std::string& command, RankPlace& place) {
  if (place.world == 1) return;
  const auto asked = environment.text("MASTER_ADDR");
  if (asked.has_value()) {
    place.address = *asked;
  } else if (place.local_world < place.world) {
    LOOM_CHECK_USER(!machine.empty(), command, " runs ", place.world, " ranks on several machines, ", place.local_world,
                    " of them here: set MASTER_ADDR to the machine of rank 0");
    place.address = machine;
  }
  place.port = environment.has("MASTER_PORT") ? port_of(environment, "MASTER_PORT")
               : run.has_value()              ? port_from(*run)
                                              : kUsualPort;
}

// "node[01-03,7],b5": node01. Several brackets are possible: "r[1-2]n[3-4]".
std::string first_host(const std::string& name, const std::string& list) {
  std::string host;
  std::string_view rest = list;
  while (!rest.empty() && rest.front() != ',') {
    if (rest.front() != '[') {
      host += rest.front();
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t close = rest.find(']');
    const std::string_view inside = close == std::string_view::npos ? "" : rest.substr(1, close - 1);
    const std::string_view one = inside.substr(0, inside.find_first_of("-,"));
    LOOM_CHECK_USER(!one.empty(), name, "=", quote_text(list), ": expected a list of machines such as node[01-03,7]");
    host += one;
    rest.remove_prefix(close + 1);
  }
  LOOM_CHECK_USER(!host.empty(), name, "=", quote_text(list), ": expected a list of machines such as node[01-03,7]");
  return host;
}

// "2(x3),1": 2, 2, 2, 1 tasks; those of machine `node`.
int tasks_of_node(const std::string& name, const std::string& list, int64_t node) {
  int64_t first = 0;
  for (const std::string& entry : split(list, ',')) {
    const std::size_t open = entry.find("(x");
    int64_t times = 1;
    if (open != std::string::npos) {
      LOOM_CHECK_USER(entry.back() == ')', name, "=", quote_text(list), ": expected tasks by machine such as 2(x3),1");
      times = number_of(name, entry.substr(open + 2, entry.size() - open - 3), 1, kMostRanks);
    }
    const int64_t tasks = number_of(name, entry.substr(0, open), 1, kMostRanks);
    if (node < first + times) return static_cast<int>(tasks);
    first += times;
  }
  throw UserError(concat(name, "=", quote_text(list), ": machine ", node, " (SLURM_NODEID) is not among its ", first));
}

const Names kSlurmStep = {"SLURM_STEP_ID", "SLURM_STEPID"};
const Names kSlurmWorld = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"};

// Only srun makes ranks. A batch script and the shell of salloc are steps, too, with numbers above all others.
bool in_slurm_step(const Environment& environment) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  if (!environment.has("SLURM_PROCID")) return false;
  const auto step = environment.first(kSlurmStep);
  return step.has_value() && environment.number(*step, 0, UINT32_MAX) < kFirstSpecialStep;
}

RankPlace slurm_place(const Environment& environment) {
  RankPlace place;
  place.launcher = "slurm";
  read_pair(environment, {"SLURM_PROCID"}, kSlurmWorld, place.rank, place.world);
  if (place.world == 1) return place;
  const std::string because = environment.shown("SLURM_PROCID");
  const std::string local = environment.needed({"SLURM_LOCALID"}, because);
  const std::string tasks =
      environment.needed({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}, because);
  const int64_t node = environment.has("SLURM_NODEID") && tasks != "SLURM_NTASKS_PER_NODE"
                           ? environment.number("SLURM_NODEID", 0, kMostRanks)
                           : 0;
  place.local_world = tasks_of_node(tasks, *environment.text(tasks), node);
  place.local_rank = static_cast<int>(environment.number(local, 0, kMostRanks));
  LOOM_CHECK_USER(place.local_rank < place.local_world, environment.shown(local), " with ", environment.shown(tasks),
                  ": expected a rank from 0 to ", place.local_world - 1);
  check_local(environment, tasks, place);
  std::string machine;
  if (const auto list = environment.first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
      list.has_value() && place.local_world < place.world)
    machine = first_host(*list, *environment.text(*list));
  const std::string job = *environment.text(environment.needed({"SLURM_JOB_ID", "SLURM_JOBID"}, because));
  find_store(environment, machine, concat(job, ".", *environment.text(*environment.first(kSlurmStep))), "srun", place);
  return place;
}

RankPlace openmpi_place(const Environment& environment) {
  RankPlace place;
  place.launcher = "openmpi";
  read_pair(environment, {"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_SIZE"}, place.rank, place.world);
  environment.needed({"OMPI_COMM_WORLD_LOCAL_RANK"}, environment.shown("OMPI_COMM_WORLD_RANK"));
  read_pair(environment, {"OMPI_COMM_WORLD_LOCAL_RANK"}, {"OMPI_COMM_WORLD_LOCAL_SIZE"}, place.local_rank,
            place.local_world);
  check_local(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", place);
  const auto job = environment.first({"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"});
  find_store(environment, "", job.has_value() ? environment.text(*job) : std::nullopt, "mpirun", place);
  return place;
}

// Hydra and its descendants. They have a job's name only inside of their protocol.
RankPlace mpich_place(const Environment& environment) {
  RankPlace place;
  place.launcher = "mpich";
  const Names local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, local_world = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"};
  read_pair(environment, {"PMI_RANK"}, {"PMI_SIZE"}, place.rank, place.world);
  environment.needed(local_rank, environment.shown("PMI_RANK"));
  read_pair(environment, local_rank, local_world, place.local_rank, place.local_world);
  check_local(environment, *environment.first(local_world), place);
  find_store(environment, "", std::nullopt, "mpiexec", place);
  return place;
}

RankPlace find_place(const Environment& environment) {
  if (environment.first({kRankVariable, kWorldVariable}).has_value()) return our_place(environment);
  if (environment.has("RANK")) return torchrun_place(environment);
  if (environment.first({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}).has_value())
    return openmpi_place(environment);
  const bool pmi = environment.first({"PMI_RANK", "PMI_SIZE"}).has_value();
  // Slurm speaks PMI as well, but never sets this one.
  if (pmi && environment.has("MPI_LOCALRANKID")) return mpich_place(environment);
  if (in_slurm_step(environment)) return slurm_place(environment);
  if (pmi) return mpich_place(environment);
  if (environment.has("WORLD_SIZE")) return torchrun_place(environment);
  return {};
}

}  // namespace

RankPlace place_from_environment(const Lookup& lookup) {
  const Environment environment(lookup);
  RankPlace place = find_place(environment);
  // Scripts set it for torch.distributed beside another launcher; then it must say the same.
  if (place.launcher != "omniloom" && environment.has("WORLD_SIZE")) {
    LOOM_CHECK_USER(environment.number("WORLD_SIZE", 1, kMostRanks) == place.world, environment.shown("WORLD_SIZE"),
                    " but ", place.launcher, " started ", place.world, place.world == 1 ? " rank" : " ranks");
  }
  return place;
}

RankPlace place_from_environment() {
  return place_from_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

}  // namespace loom
