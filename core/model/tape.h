#pragma once
// The explicit tape between units of one (component, microbatch). Autograd lives inside a unit; here weights are
// gathered (the next unit's while this one runs) and released, units are recomputed, and gradients of streams are
// handed from consumer to producer. Many tapes may be alive. Whether a unit takes part in a collective follows from
// declarations and the plan, never from the rows that a rank happens to have.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/model/bound_component.h"
#include "core/model/step_observer.h"

namespace loom {

// Everything outside the component that a pass depends on.
struct TapeContext {
  const Partitions* partitions = nullptr;
  const GroupPartitions* groups = nullptr;  // of the component's tensor group; read where it has one
  Phase phase = Phase::train;
  uint64_t seed = 0;
  int64_t step = 0;
  const std::vector<int64_t>* group_loss_rows = nullptr;  // see ModelBatch
  bool inputs_need_grad = false;                          // do the streams handed in from outside need gradients?
  bool backward_follows = false;  // at once: the weights of the last two units stay gathered for it
  KvCache* cache = nullptr;
  StepObserver* observer = nullptr;
};

// Counters that tests and reports read.
struct TapeCounters {
  int64_t units_run = 0;
  int64_t units_recomputed = 0;
  int64_t units_skipped_empty = 0;  // this rank had no rows
  ServiceCounters services;

  TapeCounters& operator+=(const TapeCounters& more);
};

using StreamMap = std::map<std::string, Tensor, std::less<>>;

class Tape {
 public:
  Tape(BoundComponent& component, SlabPool& pool, TapeContext context);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Runs the next unit: reads its inputs from `streams` and writes its outputs there. Tensors in `streams` are
  // detached.
  void forward(int unit, StreamMap& streams);
  // Rows of `stream` were replaced between units (the bridge): do gradients flow into them?
  void injected(std::string_view stream, bool needs_grad);
  // Undoes the last unit not yet undone: takes gradients of its outputs out of `gradients` (missing ones are zeros) and
  // adds those of its differentiable inputs; parameter gradients go into the buffers. InternalError when a weight has
  // changed since forward.
  void backward(int unit, StreamMap& gradients);

  // Interior losses of the units run so far, with their scale: backward adds scale * d(sum).
  const std::vector<InteriorLoss>& losses() const { return losses_; }
  void scale_losses(std::function<double(Denominator)> scale) { loss_scale_ = std::move(scale); }
  const TapeCounters& counters() const { return counters_; }

 private:
  struct Entry;
  void run_unit(Entry& entry, bool recomputing);
  // Runs code of a plugin; what it throws becomes one line that names unit and plugin. Faults of others keep their
  // class.
  void guarded(int unit, const char* where, const std::function<void()>& body) const;
  void check_output(const Entry& entry, const StreamDecl& output, const Tensor& value) const;
  std::string unit_name(int unit) const;  // "encoders.image.blocks.0"
  std::string who(int unit) const;        // the same, with the plugin
  Tensor empty_output(const StreamDecl& decl, const Entry& entry) const;
  bool backward_reads_weights(int unit) const;
  bool has_rows(int unit, const StreamDecl& stream, const Tensor& value) const;

  BoundComponent& component_;
  SlabPool& pool_;
  TapeContext context_;
  std::vector<Entry> entries_;
  std::vector<InteriorLoss> losses_;
  std::function<double(Denominator)> loss_scale_;
  TapeCounters counters_;
  size_t cache_site_ = 0;
  AttentionPlans attention_plans_;
  std::map<std::string, bool, std::less<>> differentiable_;
};

}  // namespace loom
