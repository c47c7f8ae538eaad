// AdamW and SGD differ in their state and in one kernel call; ranges, threads and names are common to both.
#include "core/train/optimizer.h"

#include <cmath>
#include <type_traits>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include "core/base/error.h"
#include "core/base/parallel.h"
#include "core/checkpoint/parts.h"
#include "core/train/update_kernels.h"

namespace loom {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements a thread takes at a time

// Calls run(scalar, begin, end) for chunks of a range of `master`, on several threads. Not at all in a dry run, whose
// tensors hold no values.
template <class Run>
void over_chunks(const at::Tensor& master, int64_t begin, int64_t end, const Run& run) {
  if (master.is_meta()) return;
  AT_DISPATCH_FLOATING_TYPES(master.scalar_type(), "optimizer", [&] {
    loom::parallel_for(begin, end, kChunk, [&](int64_t from, int64_t to) { run(scalar_t{}, from, to); });
  });
}

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerConfig& config, const std::vector<UnitBuffer*>& buffers)
      : Optimizer(buffers, config.groups), config_(config) {}

  std::vector<NamedTensor> state() override {
    make_state();
    std::vector<NamedTensor> out;
    append_views("exp_avg", exp_avg_, out);
    append_views("exp_avg_sq", exp_avg_sq_, out);
    return out;
  }

  int64_t state_bytes() const override { return 2 * master_bytes(); }

 private:
  void make_state() override {
    if (!exp_avg_.empty()) return;
    exp_avg_ = zeros_like_masters();
    exp_avg_sq_ = zeros_like_masters();
  }

  void update(const Range& range, double lr, double grad_scale, int64_t step) override {
    RECORD_FUNCTION("loom::adamw", std::vector<c10::IValue>{});
    at::Tensor& master = range.buffer->master();
    if (master.is_cuda()) return update_on_gpu(range, lr, grad_scale, step);
    const at::Tensor& gradient = range.buffer->gradient();
    const at::Tensor& exp_avg = exp_avg_[range.slot];
    const at::Tensor& exp_avg_sq = exp_avg_sq_[range.slot];
    const double correction1 = 1 - std::pow(config_.beta1, static_cast<double>(step));
    const double correction2 = 1 - std::pow(config_.beta2, static_cast<double>(step));
    over_chunks(master, range.begin, range.end, [&](auto scalar, int64_t from, int64_t to) {
      using T = decltype(scalar);
      const kernels::AdamWConstants<T> constants{static_cast<T>(grad_scale),
                                                 static_cast<T>(1 - lr * range.settings.weight_decay),
                                                 static_cast<T>(1 - config_.beta1),
                                                 static_cast<T>(config_.beta2),
                                                 static_cast<T>(1 - config_.beta2),
                                                 static_cast<T>(lr / correction1),
                                                 static_cast<T>(std::sqrt(correction2)),
                                                 static_cast<T>(config_.eps)};
      kernels::adamw(master.mutable_data_ptr<T>() + from, gradient.const_data_ptr<T>() + from,
                     exp_avg.mutable_data_ptr<T>() + from, exp_avg_sq.mutable_data_ptr<T>() + from, to - from,
                     constants);
    });
  }

  // LibTorch's fused step: the same arithmetic, over the same flat range. It divides gradients by its scale, in place.
  void update_on_gpu(const Range& range, double lr, double grad_scale, int64_t step) {
    const auto part = [&](const at::Tensor& flat) {
      return std::vector<at::Tensor>{flat.narrow(0, range.begin, range.end - range.begin)};
    };
    const at::Tensor& master = range.buffer->master();
    const at::TensorOptions number = at::TensorOptions(at::kFloat).device(master.device());
    std::optional<at::Tensor> divisor;
    if (grad_scale != 1) divisor = at::full({}, 1 / grad_scale, number);
    at::_fused_adamw_(part(master), part(range.buffer->gradient()), part(exp_avg_[range.slot]),
                      part(exp_avg_sq_[range.slot]), {}, {at::full({}, static_cast<double>(step), number)}, lr,
                      config_.beta1, config_.beta2, range.settings.weight_decay, config_.eps, false, false, divisor);
  }

  OptimizerConfig config_;
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;  // by slot; empty before the first step
};

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, const std::vector<UnitBuffer*>& buffers)
      : Optimizer(buffers, config.groups), config_(config) {}

  std::vector<NamedTensor> state() override {
    make_state();
    std::vector<NamedTensor> out;
    if (!momentum_.empty()) append_views("momentum", momentum_, out);
    return out;
  }

  int64_t state_bytes() const override { return config_.momentum != 0 ? master_bytes() : 0; }

 private:
  void make_state() override {
    if (config_.momentum != 0 && momentum_.empty()) momentum_ = zeros_like_masters();
  }

  void update(const Range& range, double lr, double grad_scale, int64_t /*step*/) override {
    RECORD_FUNCTION("loom::sgd", std::vector<c10::IValue>{});
    at::Tensor& master = range.buffer->master();
    const at::Tensor& gradient = range.buffer->gradient();
    if (master.is_cuda()) {
      const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, range.begin, range.end - range.begin); };
      at::Tensor weight = part(master),
                 change = part(gradient).mul(grad_scale).add_(weight, range.settings.weight_decay);
      if (!momentum_.empty()) change = part(momentum_[range.slot]).mul_(config_.momentum).add_(change);
      weight.sub_(change, lr);
      return;
    }
    over_chunks(master, range.begin, range.end, [&](auto scalar, int64_t from, int64_t to) {
      using T = decltype(scalar);
      const kernels::SgdConstants<T> constants{static_cast<T>(grad_scale), static_cast<T>(range.settings.weight_decay),
                                               static_cast<T>(config_.momentum), static_cast<T>(lr)};
      T* momentum = momentum_.empty() ? nullptr : momentum_[range.slot].mutable_data_ptr<T>() + from;
      kernels::sgd(master.mutable_data_ptr<T>() + from, gradient.const_data_ptr<T>() + from, momentum, to - from,
                   constants);
    });
  }

  OptimizerConfig config_;
  std::vector<at::Tensor> momentum_;  // by slot; empty without momentum and before the first step
};

}  // namespace

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const std::vector<UnitBuffer*>& buffers, const ParamGroups& groups) {
  const std::vector<std::vector<EntrySettings>> settings = resolve_param_groups(groups, buffers);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b]->trainable()) continue;
    const at::ScalarType master = buffers[b]->master().scalar_type();
    LOOM_CHECK(master == at::kFloat || master == at::kDouble, "master weights of ", buffers[b]->unit(), " are ",
               c10::toString(master));
    const std::vector<BufferEntry>& entries = buffers[b]->entries();
    for (size_t e = 0; e < entries.size(); ++e) {
      const int64_t end = entries[e].offset + entries[e].numel;
      Range* last = ranges_.empty() ? nullptr : &ranges_.back();
      if (last != nullptr && last->buffer == buffers[b] && last->settings == settings[b][e]) {
        last->end = end;  // padding between entries has zero weights and gradients, and stays so
      } else {
        ranges_.push_back({buffers[b], buffers_.size(), entries[e].offset, end, settings[b][e]});
      }
    }
    buffers_.push_back(buffers[b]);
  }
}

void Optimizer::step(double lr, double grad_scale) {
  ++steps_;
  make_state();
  for (UnitBuffer* buffer : buffers_) buffer->gradient();  // made on first use, so not inside a parallel loop
  for (const Range& range : ranges_) update(range, lr * range.settings.lr_factor, grad_scale, steps_);
  for (UnitBuffer* buffer : buffers_) buffer->master_written();
}

std::vector<at::Tensor> Optimizer::zeros_like_masters() const {
  std::vector<at::Tensor> out;
  for (UnitBuffer* buffer : buffers_) out.push_back(at::zeros_like(buffer->master()));
  return out;
}

int64_t Optimizer::master_bytes() const {
  int64_t bytes = 0;
  for (UnitBuffer* buffer : buffers_) bytes += static_cast<int64_t>(buffer->master().nbytes());
  return bytes;
}

void Optimizer::append_views(const std::string& what, const std::vector<at::Tensor>& flat,
                             std::vector<NamedTensor>& out) const {
  for (size_t slot = 0; slot < buffers_.size(); ++slot) {
    append_parts(*buffers_[slot], flat[slot], "optimizer." + what + ".", out);
  }
}

void add_optimizer_fields(Schema& train) {
  train.choice("optimizer", "adamw", {"adamw", "sgd"}, "what turns gradients into updates");
  train.number("beta1", 0.9, {0, 1}, "adamw: decay of the mean of gradients");
  train.number("beta2", 0.999, {0, 1}, "adamw: decay of the mean of squared gradients");
  train.number("eps", 1e-8, {1e-30, 1}, "adamw: added to the denominator");
  train.number("momentum", 0.9, {0, 1}, "sgd: decay of the sum of gradients");
  add_param_group_fields(train);
}

OptimizerConfig read_optimizer(const ConfigValue& train) {
  OptimizerConfig config;
  config.kind = train.get_string("optimizer");
  config.beta1 = train.get_number("beta1");
  config.beta2 = train.get_number("beta2");
  config.eps = train.get_number("eps");
  config.momentum = train.get_number("momentum");
  for (const char* name : {"beta1", "beta2", "momentum"}) {
    const ConfigValue& value = train.at(name);
    LOOM_CHECK_USER(value.as_number() < 1, value.mark.str(), ": ", value.path, ": expected a number below 1, found ",
                    value.text());
  }
  config.groups = read_param_groups(train);
  return config;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const std::vector<UnitBuffer*>& buffers) {
  if (config.kind == "sgd") return std::make_unique<Sgd>(config, buffers);
  LOOM_CHECK(config.kind == "adamw", "optimizer '", config.kind, "' should have been refused by the schema");
  return std::make_unique<AdamW>(config, buffers);
}

}  // namespace loom
