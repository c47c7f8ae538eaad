#pragma once
// Optimizers over unit buffers. State lies in flat buffers parallel to the master weights, so a step is one pass over
// contiguous memory; names appear only where a checkpoint needs them.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/checkpoint/checkpoint.h"
#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/parallel/unit_buffer.h"
#include "core/train/param_groups.h"

namespace loom {

struct OptimizerConfig {
  std::string kind = "adamw";  // adamw, sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0.9;
  ParamGroups groups;
};

class Optimizer {
 public:
  virtual ~Optimizer();
  // One update of every trainable buffer from its gradient, read as gradient * grad_scale; `lr` is the schedule's rate,
  // before the factors of parameter groups. Announces the change to each buffer.
  void step(double lr, double grad_scale);
  // Updates done so far; what bias corrections count. A step without supervised tokens is not one of them.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }  // when a checkpoint is loaded
  // This rank's parts per parameter: "optimizer.exp_avg.backbone.head.weight". Views, so writing to them loads the
  // state. Made by this or by the first step, whichever comes first, so that the start of a run need not wait for it.
  virtual std::vector<NamedTensor> state() = 0;
  virtual int64_t state_bytes() const = 0;

 protected:
  // A run of elements of one buffer with equal settings.
  struct Range {
    UnitBuffer* buffer = nullptr;
    size_t slot = 0;  // of the buffer, among the trainable ones
    int64_t begin = 0, end = 0;
    EntrySettings settings;
  };

  Optimizer(const std::vector<UnitBuffer*>& buffers, const ParamGroups& groups);
  virtual void make_state() = 0;
  virtual void update(const Range& range, double lr, double grad_scale, int64_t step) = 0;
  std::vector<at::Tensor> zeros_like_masters() const;
  int64_t master_bytes() const;
  // Views of flat state tensors, named "optimizer.<what>.<parameter>".
  void append_views(const std::string& what, const std::vector<at::Tensor>& flat, std::vector<NamedTensor>& out) const;

  std::vector<UnitBuffer*> buffers_;  // trainable ones

 private:
  std::vector<Range> ranges_;
  int64_t steps_ = 0;
};

// Fields of the recipe's `train` section: optimizer, betas, eps, momentum and those of param_groups.h.
void add_optimizer_fields(Schema& train);
// From a validated `train` section.
OptimizerConfig read_optimizer(const ConfigValue& train);
// UserError when a group's pattern matches nothing. The buffers must outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const std::vector<UnitBuffer*>& buffers);

}  // namespace loom
