#pragma once
// The order of a step's work on this rank. Consecutive actions of one component in one direction are a phase. Actions
// hold collectives, so all ranks have the same phases, with or without rows, and can be compared phase by phase.
#include <functional>
#include <string>
#include <vector>

#include "core/model/step_observer.h"

namespace loom {

const char* step_action_name(StepAction action);  // "forward"
// What a phase belongs to, for people: its component, else "data" or "optimizer".
std::string phase_part(StepAction action, const std::string& component);

// Seconds.
struct StepPhase {
  StepAction action = StepAction::data;
  std::string component{};  // empty for what belongs to none
  // Without communication: processor time of this thread, which does not grow while others have the core; on a GPU, and
  // of StepAction::data, which waits, time as it passes.
  double compute = 0;
  double inside = 0;  // communication in its actions, waiting for others included
  double after = 0;   // communication behind them, up to the next phase: between components
};

// A phase or, drawn over phases and what is between them, communication; seconds since the step began.
struct StepBar {
  StepAction action = StepAction::data;
  std::string component{};
  bool communication = false;
  double begin = 0, end = 0;
};

// Written by a clock, whose marks are numbered moments.
class PhaseLog {
 public:
  using Between = std::function<double(size_t begin, size_t end)>;  // seconds from mark to mark

  explicit PhaseLog(bool on_host) : on_host_(on_host) {}
  void restart();
  void begin(StepAction action, const std::string& component, size_t mark);
  void end(size_t mark);
  // `processor`: seconds of this thread that it took.
  void communicated(size_t begin, size_t end, double processor);
  // Processor seconds of this thread, now.
  double processor() const;

  std::vector<StepPhase> phases(const Between& between) const;
  // Compute of the whole step so far, between phases too (of a GPU: of the phases, but for waiting for data).
  double compute(const std::vector<StepPhase>& phases) const;
  // In the order of their begins, phases first. Communications nearer than `resolution` seconds become one, and shorter
  // ones are left out. Mark 0 is the step's begin.
  std::vector<StepBar> bars(const Between& between, double resolution) const;

 private:
  struct Phase {
    StepAction action;
    std::string component;
    double processor = 0;
  };
  struct Span {
    size_t phase = 0;
    bool communication = false, inside = true;
    size_t begin = 0, end = 0;
  };

  bool on_host_;
  std::vector<Phase> phases_;
  std::vector<Span> spans_;
  size_t open_span_ = 0;
  bool open_ = false;
  double since_ = 0, began_ = 0, communication_ = 0;
};

}  // namespace loom
