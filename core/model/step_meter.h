#pragma once
// Watches passes of a model on this thread: operations by unit, and where and when the memory of its device is at its
// peak. On a model of meta tensors this is a dry run: nothing is computed, but everything is allocated (as sizes) and
// freed in the order of a real step.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/multimodal_model.h"
#include "core/nn/flops.h"

namespace loom {

// Floating-point operations; a multiply-add is two. Products (linear layers, convolutions) and attention, in which only
// what the mask lets through counts.
struct Operations {
  double products = 0, attention = 0;
  double again = 0;  // of recomputation and of scores that the backward of attention makes again; in neither of the two
  double model() const { return products + attention; }
  double hardware() const { return products + attention + again; }
  Operations& operator+=(const Operations& more);
};

struct UnitWork {
  std::string component, unit;
  Operations forward, backward;
  std::vector<AttentionSpec> attention;  // its calls, over all runs
};

struct PeakMoment {
  int64_t bytes = 0;       // live
  bool in_action = false;  // else between two
  StepAction action = StepAction::batch;
  std::string component, unit;
  int64_t before = 0;                   // live when the microbatch began: weights, gradients, optimizer, tables
  int64_t batch = 0;                    // of it
  std::map<std::string, int64_t> kept;  // by component; "" = the bridge and gradients on their way
  int64_t transient = 0;                // of the action itself
};

class StepMeter final : public StepObserver, public FlopSink {
 public:
  explicit StepMeter(MultimodalModel& model);
  ~StepMeter() override;
  StepMeter(const StepMeter&) = delete;
  StepMeter& operator=(const StepMeter&) = delete;

  void restart();  // forgets what was seen; the peak begins anew at what is live now
  const std::vector<UnitWork>& units() const { return units_; }  // in order of their first run
  std::map<std::string, Operations> components() const;          // forward and backward
  Operations total() const;
  const PeakMoment& peak() const { return peak_; }

  void begin(StepAction action, const std::string& component, const std::string& unit) override;
  void end() override;
  void add_flops(double flops, bool attention, bool again) override;
  void attends(const AttentionSpec& spec) override;

 private:
  UnitWork& work(const std::string& component, const std::string& unit);
  void look(bool in_action);

  MultimodalModel& model_;
  c10::DeviceType device_;
  CountFlops counts_;
  uint64_t callback_;
  std::vector<UnitWork> units_;
  UnitWork* current_ = nullptr;
  PeakMoment now_, peak_;
  int64_t live_ = 0;  // at the last border between actions
};

}  // namespace loom
