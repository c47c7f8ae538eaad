#pragma once
// What every rank did in a step, phase by phase, on rank 0: one message of a few numbers from every other rank.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/step_clock.h"
#include "core/step/step_plan.h"

namespace loom {

// All vectors are by rank, times in seconds.
struct RankTable {
  struct Phase {
    StepAction action = StepAction::data;
    std::string component{};
    std::vector<double> compute{}, inside{}, after{};  // see StepPhase
  };
  std::vector<Phase> phases;
  std::vector<double> seconds;  // of the step, as it passes
  std::vector<double> compute;  // of all of it (StepTime::compute)
  // Bytes sent to other ranks in the step's passes, by component; "" = gradient norm and statistics.
  std::map<std::string, std::vector<int64_t>> sent;

  int world() const { return static_cast<int>(seconds.size()); }
  // Summed over the phases of a component; nothing for one that has none.
  std::map<std::string, std::vector<double>> compute_by_component() const;
  std::map<std::string, std::vector<double>> communication_by_component() const;
};

// Most over mean compute of the ranks, 1 = even, by component: ranks meet in every phase, so it is the sum over phases
// of the most over that of the mean.
std::map<std::string, double> measured_imbalance(const RankTable& table);

// On all ranks of a world of several; where there is one rank nothing is sent and rank 0 has a table all the same.
class RankGather {
 public:
  // `components`: names of the model's, equal on all ranks.
  RankGather(Communicator& comm, std::vector<std::string> components);
  // Bytes count from here.
  void begin_step();
  // Behind a step, on all ranks together. Rank 0 gets the table, unless ranks went through different phases (a step
  // that fell apart is no reason to end a training); the others get nothing.
  std::optional<RankTable> gather(const StepTime& time, const StepPlan& plan);

 private:
  std::vector<double> sent() const;  // by component, "" last
  std::vector<double> packed(const StepTime& time, size_t most_phases) const;
  std::optional<RankTable> table_of(const StepTime& time, const std::vector<std::vector<double>>& ranks) const;

  Communicator& comm_;
  std::vector<std::string> components_;
  std::vector<double> before_;
};

}  // namespace loom
