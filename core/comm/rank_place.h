#pragma once
// Where a process stands among the ranks of a run. Whoever starts ranks (our own launcher, torchrun, srun, mpirun)
// tells each of them by variables of its own; this is the one place that knows their names.
#include <functional>
#include <optional>
#include <string>

namespace loom {

struct RankPlace {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;    // on this machine
  std::string address = "127.0.0.1";      // where the store is
  int port = 0;                           // 0 when world is 1
  bool store_elsewhere = false;           // the launcher holds the store (torchrun's agent); rank 0 only connects
  std::string store_prefix = "omniloom";  // of all keys; torchrun's agent keeps one store over restarts of its ranks
  std::string launcher = "alone";         // "omniloom", "torchrun", "slurm", "openmpi", "mpich"
};

// Variables of our own launcher.
inline constexpr const char* kRankVariable = "OMNILOOM_RANK";
inline constexpr const char* kWorldVariable = "OMNILOOM_WORLD_SIZE";
inline constexpr const char* kLocalRankVariable = "OMNILOOM_LOCAL_RANK";
inline constexpr const char* kLocalWorldVariable = "OMNILOOM_LOCAL_WORLD_SIZE";
inline constexpr const char* kAddressVariable = "OMNILOOM_ADDRESS";
inline constexpr const char* kPortVariable = "OMNILOOM_PORT";

using Lookup = std::function<std::optional<std::string>(const std::string&)>;

// UserError that names variable and value when they are half set, no numbers, or contradict each other. An empty
// variable counts as one that is not set.
RankPlace place_from_environment(const Lookup& lookup);
RankPlace place_from_environment();  // the process's own

}  // namespace loom
