#pragma once
// Told what a training step does, action by action, in order: what plans attribute memory and operations to. Actions
// do not nest.
#include <string>

namespace loom {

enum class StepAction { forward = 1, backward, batch, gradients, norm, update };

class StepObserver {
 public:
  virtual ~StepObserver();
  // `component` and `unit` are empty for what belongs to no component.
  virtual void begin(StepAction action, const std::string& component, const std::string& unit) = 0;
  virtual void end() = 0;
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
