#pragma once
// Where the time of a training step goes on this rank: by component and unit, forward and backward, and in each by kind
// of operation. LibTorch tells of every operation by name, so layers need no code for it; of operations inside another
// the outermost counts. On a device that works behind the host's back, moments are events in its queue, read when the
// step has ended; elsewhere they are the host's clock.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/multimodal_model.h"
#include "core/model/step_phases.h"

namespace loom {

enum class TimeKind { gemm = 1, attention, communication };

// By the name of its record ("aten::mm", "loom::attention"); nothing for all others.
std::optional<TimeKind> kind_of_operation(std::string_view name);

struct KindSeconds {
  double gemm = 0, attention = 0, communication = 0, other = 0;
  double total() const { return gemm + attention + communication + other; }
  KindSeconds& operator+=(const KindSeconds& more);
};

struct UnitTime {
  std::string component, unit;
  KindSeconds forward, backward;
};

// passes.total() + optimizer + data + rest = seconds.
struct StepTime {
  double seconds = 0;
  KindSeconds passes;           // forward and backward; communication is that of the whole step
  double optimizer = 0;         // clearing gradients, norm, update
  double data = 0;              // waiting for samples, and building batches of them
  double rest = 0;              // between all these
  std::vector<UnitTime> units;  // that ran, in order of their first run
  double compute = 0;           // of this thread, without communication: processor time, or a GPU's (step_phases.h)
  std::vector<StepPhase> phases;
};

class StepClock final : public StepObserver {
 public:
  explicit StepClock(MultimodalModel& model);
  ~StepClock() override;
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  // Both on one thread. `waited`: seconds that this step has waited for its data before; they count.
  void begin_step(double waited = 0);
  StepTime end_step();
  // Of the step that has ended, until the next one begins, by the clock that age() reads.
  std::vector<StepBar> bars() const;
  // Seconds since the step began, without what it had waited before.
  double age() const;

  void begin(StepAction action, const std::string& component, const std::string& unit) override;
  void end() override;

 private:
  class Timeline;
  struct Listener;
  size_t cell_of(StepAction action, const std::string& component, const std::string& unit);
  KindSeconds kinds(size_t cell) const;
  void stop_listening();

  // Time of one action, or of a unit in one direction: whole, and inside by kind.
  struct Cell {
    double whole = 0;
    KindSeconds inside;
    bool used = false;
  };
  struct Span {
    size_t cell = 0;
    std::optional<TimeKind> kind{};  // nothing = the whole action
    size_t begin = 0, end = 0;       // marks
  };

  MultimodalModel& model_;
  std::unique_ptr<Timeline> timeline_;
  PhaseLog phases_;
  std::shared_ptr<Listener> listener_;  // during a step
  std::vector<Cell> cells_;
  std::vector<Span> spans_;
  std::map<std::string, std::map<std::string, size_t>> known_;  // first cell of a unit: forward, then backward
  std::vector<std::pair<std::string, std::string>> names_;      // of units, in order of their cells
  size_t current_ = 0, since_ = 0;
  bool inside_ = false;  // an operation of a kind
  double began_ = 0, waited_ = 0, seconds_ = 0;
};

}  // namespace loom
