// LibTorch tells of every operation before it runs, with its inputs. Memory is read where actions begin and end: what
// an action leaves behind belongs to its component, and the action in which the meter's peak rose last is the one that
// holds it.
#include "core/model/step_meter.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/base/error.h"
#include "core/model/meta_kernels.h"
#include "core/parallel/memory_meter.h"

namespace loom {
namespace {

// Operations per number of the output of a convolution, for when the output is known.
struct Convolution : at::ObserverContext {
  explicit Convolution(double flops) : per_number(flops) {}
  double per_number;
};

double size_of(const at::Tensor& x, int64_t dim) { return static_cast<double>(x.size(dim)); }

// The product of the inputs at `first` and after it: [m, k] [k, n], or a batch of them.
void count_product(c10::ArrayRef<const c10::IValue> inputs, size_t first) {
  if (inputs.size() < first + 2 || !inputs[first].isTensor() || !inputs[first + 1].isTensor()) return;
  const at::Tensor &a = inputs[first].toTensor(), &b = inputs[first + 1].toTensor();
  count_flops(2.0 * static_cast<double>(a.numel()) * size_of(b, -1), false);
}

double multiplications(const at::Tensor& weight) {
  return weight.size(0) == 0 ? 0 : static_cast<double>(weight.numel()) / size_of(weight, 0);
}

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& record) {
  const char* name = record.name();
  if (std::strncmp(name, "aten::", 6) != 0) return nullptr;
  const std::string_view op(name + 6);
  const c10::ArrayRef<const c10::IValue> in = record.inputs();
  if (op == "mm" || op == "bmm") {
    count_product(in, 0);
  } else if (op == "addmm" || op == "addmm_" || op == "baddbmm" || op == "baddbmm_") {
    count_product(in, 1);
  } else if (op == "convolution" && in.size() > 6) {
    const bool transposed = in[6].toBool();
    if (!transposed) return std::make_unique<Convolution>(2 * multiplications(in[1].toTensor()));
    count_flops(2.0 * static_cast<double>(in[0].toTensor().numel()) * multiplications(in[1].toTensor()), false);
  } else if (op == "convolution_backward" && in.size() > 10) {
    const at::Tensor& rows = in[in[7].toBool() ? 1 : 0].toTensor();
    const auto wanted = in[10].toBoolList();
    const double gradients = (wanted[0] ? 1 : 0) + (wanted[1] ? 1 : 0);
    count_flops(2.0 * static_cast<double>(rows.numel()) * multiplications(in[2].toTensor()) * gradients, false);
  }
  return nullptr;
}

void after_operation(const at::RecordFunction& record, at::ObserverContext* context) {
  for (const c10::IValue& value : record.outputs()) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& out = value.toTensor();
    // Who asks for the memory of a dry run's tensor (data_ptr) shall hear of it instead of crashing.
    if (out.is_meta() && out.has_storage()) out.storage().unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
    if (const auto* convolution = dynamic_cast<Convolution*>(context))
      count_flops(convolution->per_number * static_cast<double>(out.numel()), false);
  }
}

}  // namespace

Operations& Operations::operator+=(const Operations& more) {
  products += more.products;
  attention += more.attention;
  again += more.again;
  return *this;
}

StepMeter::StepMeter(MultimodalModel& model)
    : model_(model), device_(model.device().type()), counts_(*this), callback_(0) {
  LOOM_CHECK(memory_metered(), "a step is watched without a memory meter");
  if (device_ == c10::DeviceType::Meta) install_meta_kernels();
  at::RecordFunctionCallback callback(&before_operation, &after_operation);
  callback.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION});
  callback_ = at::addThreadLocalCallback(callback);
  model_.observers().add(*this);
  restart();
}

StepMeter::~StepMeter() {
  model_.observers().remove(*this);
  at::removeCallback(callback_);
}

void StepMeter::restart() {
  units_.clear();
  current_ = nullptr;
  reset_memory_peak(device_);
  live_ = memory_use(device_).live;
  now_ = {};
  now_.before = live_;
  peak_ = now_;
  peak_.bytes = live_;
}

UnitWork& StepMeter::work(const std::string& component, const std::string& unit) {
  const auto found = std::find_if(units_.begin(), units_.end(),
                                  [&](const UnitWork& w) { return w.component == component && w.unit == unit; });
  if (found != units_.end()) return *found;
  units_.emplace_back();
  units_.back().component = component;
  units_.back().unit = unit;
  return units_.back();
}

// Did the peak rise since the last border? Then it lies behind it.
void StepMeter::look(bool in_action) {
  const MemoryUse use = memory_use(device_);
  if (use.peak > peak_.bytes) {
    peak_ = now_;
    peak_.in_action = in_action;
    peak_.bytes = use.peak;
    peak_.transient = use.peak - live_;
  }
  const int64_t left = use.live - live_;
  live_ = use.live;
  if (!in_action) {
    now_.kept[""] += left;
  } else if (now_.action == StepAction::batch) {
    now_.batch += left;
  } else if (now_.action == StepAction::forward || now_.action == StepAction::backward) {
    now_.kept[now_.component] += left;
  } else {
    now_.before += left;  // gradients, made in the first step
  }
}

void StepMeter::begin(StepAction action, const std::string& component, const std::string& unit) {
  look(false);
  if (action == StepAction::batch || action == StepAction::gradients) {
    now_ = {};
    now_.before = live_;
  }
  now_.action = action;
  now_.component = component;
  now_.unit = unit;
  current_ = component.empty() ? nullptr : &work(component, unit);
}

void StepMeter::end() {
  look(true);
  current_ = nullptr;
}

void StepMeter::add_flops(double flops, bool attention, bool again) {
  UnitWork& unit = current_ != nullptr ? *current_ : work("", "");
  Operations& sum = now_.action == StepAction::backward ? unit.backward : unit.forward;
  (again ? sum.again : attention ? sum.attention : sum.products) += flops;
}

void StepMeter::attends(const AttentionSpec& spec) {
  if (current_ != nullptr) current_->attention.push_back(spec);
}

std::map<std::string, Operations> StepMeter::components() const {
  std::map<std::string, Operations> out;
  for (const UnitWork& unit : units_) (out[unit.component] += unit.forward) += unit.backward;
  return out;
}

Operations StepMeter::total() const {
  Operations out;
  for (const auto& [name, operations] : components()) out += operations;
  return out;
}

}  // namespace loom
