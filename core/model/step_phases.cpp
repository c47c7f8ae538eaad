#include "core/model/step_phases.h"

#include <algorithm>
#include <ctime>

namespace loom {

const char* step_action_name(StepAction action) {
  switch (action) {
    case StepAction::forward:
      return "forward";
    case StepAction::backward:
      return "backward";
    case StepAction::batch:
      return "batch";
    case StepAction::gradients:
      return "gradients";
    case StepAction::norm:
      return "norm";
    case StepAction::update:
      return "update";
    case StepAction::data:
      return "data";
  }
  return "";
}

std::string phase_part(StepAction action, const std::string& component) {
  if (!component.empty()) return component;
  return action == StepAction::data || action == StepAction::batch ? "data" : "optimizer";
}

double PhaseLog::processor() const {
  if (!on_host_) return 0;
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void PhaseLog::restart() {
  phases_.clear();
  spans_.clear();
  open_ = false;
  communication_ = 0;
  began_ = processor();
}

void PhaseLog::begin(StepAction action, const std::string& component, size_t mark) {
  if (phases_.empty() || phases_.back().action != action || phases_.back().component != component)
    phases_.push_back({action, component});
  open_ = true;
  open_span_ = spans_.size();
  spans_.push_back({phases_.size() - 1, false, true, mark, mark});
  since_ = processor();
}

void PhaseLog::end(size_t mark) {
  phases_.back().processor += processor() - since_;
  spans_[open_span_].end = mark;
  open_ = false;
}

void PhaseLog::communicated(size_t begin, size_t end, double processor) {
  communication_ += processor;
  if (phases_.empty()) return;
  if (open_) phases_.back().processor -= processor;
  spans_.push_back({phases_.size() - 1, true, open_, begin, end});
}

std::vector<StepPhase> PhaseLog::phases(const Between& between) const {
  std::vector<StepPhase> out;
  std::vector<double> whole(phases_.size());
  for (const Phase& phase : phases_) out.push_back({phase.action, phase.component});
  for (const Span& span : spans_) {
    const double seconds = between(span.begin, span.end);
    if (!span.communication) {
      whole[span.phase] += seconds;
    } else {
      (span.inside ? out[span.phase].inside : out[span.phase].after) += seconds;
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const bool as_it_passes = !on_host_ || out[i].action == StepAction::data;
    out[i].compute = std::max(0.0, as_it_passes ? whole[i] - out[i].inside : phases_[i].processor);
  }
  return out;
}

double PhaseLog::compute(const std::vector<StepPhase>& phases) const {
  if (on_host_) return std::max(0.0, processor() - began_ - communication_);
  double sum = 0;
  for (const StepPhase& phase : phases) sum += phase.action == StepAction::data ? 0 : phase.compute;
  return sum;
}

std::vector<StepBar> PhaseLog::bars(const Between& between, double resolution) const {
  std::vector<StepBar> phases, communication;
  size_t last = phases_.size(), last_under = phases_.size();
  for (const Span& span : spans_) {
    const Phase& phase = phases_[span.phase];
    const double begin = between(0, span.begin), end = between(0, span.end);
    std::vector<StepBar>& bars = span.communication ? communication : phases;
    size_t& same = span.communication ? last_under : last;
    if (same == span.phase && (!span.communication || begin - bars.back().end <= resolution)) {
      bars.back().end = end;
    } else {
      bars.push_back({phase.action, phase.component, span.communication, begin, end});
      same = span.phase;
    }
  }
  std::erase_if(communication, [&](const StepBar& bar) { return bar.end - bar.begin < resolution; });
  phases.insert(phases.end(), communication.begin(), communication.end());
  return phases;
}

}  // namespace loom
