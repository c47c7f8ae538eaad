#pragma once
// Told what a training step does, action by action, in order: what plans attribute memory and operations to, and clocks
// time. Actions do not nest. Any number may listen at once.
#include <algorithm>
#include <string>
#include <vector>

namespace loom {

enum class StepAction { forward = 1, backward, batch, gradients, norm, update, data };  // data: waiting for it

class StepObserver {
 public:
  virtual ~StepObserver();
  // `component` and `unit` are empty for what belongs to no component.
  virtual void begin(StepAction action, const std::string& component, const std::string& unit) = 0;
  virtual void end() = 0;
};

// Tells all who listen, in the order in which they came.
class StepObservers final : public StepObserver {
 public:
  void add(StepObserver& observer) { all_.push_back(&observer); }
  void remove(StepObserver& observer) { std::erase(all_, &observer); }
  bool empty() const { return all_.empty(); }
  void begin(StepAction action, const std::string& component, const std::string& unit) override {
    for (StepObserver* observer : all_) observer->begin(action, component, unit);
  }
  void end() override {
    for (StepObserver* observer : all_) observer->end();
  }

 private:
  std::vector<StepObserver*> all_;
};

// Tells an observer, if there is one, that an action lasts as long as the scope.
class ObservedAction {
 public:
  ObservedAction(StepObserver* observer, StepAction action, const std::string& component = {},
                 const std::string& unit = {})
      : observer_(observer) {
    if (observer_ != nullptr) observer_->begin(action, component, unit);
  }
  ~ObservedAction() {
    if (observer_ != nullptr) observer_->end();
  }
  ObservedAction(const ObservedAction&) = delete;
  ObservedAction& operator=(const ObservedAction&) = delete;

 private:
  StepObserver* observer_;
};

}  // namespace loom
