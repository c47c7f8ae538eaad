// Callbacks of LibTorch are plain functions; which clock they serve travels with the thread's debug information, which
// LibTorch also hands to its threads for the backward of a device. Time is added up at the end of a step, from pairs of
// marks.
#include "core/model/step_clock.h"

#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/base/error.h"

namespace loom {
namespace {

// Cells that belong to no unit; those of units follow in pairs.
constexpr size_t kOutside = 0, kData = 1, kOptimizer = 2, kUnits = 3;

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <size_t count>
bool one_of(std::string_view name, const std::array<std::string_view, count>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <size_t count>
bool begins_with_one_of(std::string_view name, const std::array<std::string_view, count>& names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view begin) { return name.starts_with(begin); });
}

// Without "aten::".
std::optional<TimeKind> kind_of_aten(std::string_view op) {
  static constexpr std::array<std::string_view, 12> kProducts = {
      "mm", "addmm", "addmm_", "bmm",        "baddbmm", "baddbmm_",
      "mv", "addmv", "addmv_", "_scaled_mm", "addbmm",  "_addmm_activation"};
  static constexpr std::array<std::string_view, 8> kConvolutions = {"convolution", "_convolution",  "cudnn_conv",
                                                                    "mkldnn_conv", "mkldnn_linear", "slow_conv",
                                                                    "thnn_conv",   "_grouped_mm"};
  static constexpr std::array<std::string_view, 5> kAttention = {
      "_flash_attention", "_efficient_attention", "_cudnn_attention", "_scaled_dot_product", "scaled_dot_product"};
  // Most operations leave here.
  if (op.empty() || std::string_view("mab_cst").find(op.front()) == std::string_view::npos) return std::nullopt;
  if (one_of(op, kProducts) || begins_with_one_of(op, kConvolutions)) return TimeKind::gemm;
  if (begins_with_one_of(op, kAttention)) return TimeKind::attention;
  return std::nullopt;
}

}  // namespace

std::optional<TimeKind> kind_of_operation(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kCommunication = {"loom::comm",
                                                                     "c10d::", "nccl:", "record_param_comms"};
  if (name.starts_with("aten::")) return kind_of_aten(name.substr(6));
  if (name.starts_with("loom::matmul") || name.starts_with("mkldnn::_")) return TimeKind::gemm;
  if (name.starts_with("loom::attention")) return TimeKind::attention;
  if (begins_with_one_of(name, kCommunication)) return TimeKind::communication;
  return std::nullopt;
}

KindSeconds& KindSeconds::operator+=(const KindSeconds& more) {
  gemm += more.gemm;
  attention += more.attention;
  communication += more.communication;
  other += more.other;
  return *this;
}

// Moments in the order of the device's work.
class StepClock::Timeline {
 public:
  explicit Timeline(c10::Device device)
      : device_(device), on_host_(device.is_cpu() || device.is_meta()), began_(host_seconds()) {}

  size_t mark() {
    if (on_host_) {
      moments_.push_back(host_seconds() - began_);
      return moments_.size() - 1;
    }
    if (used_ == events_.size()) events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    events_[used_].record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    return used_++;
  }
  bool on_host() const { return on_host_; }
  // Waits for all marks.
  void settle() const {
    if (used_ > 0) events_[used_ - 1].synchronize();
  }
  double between(size_t begin, size_t end) const {
    return on_host_ ? moments_[end] - moments_[begin] : 1e-3 * events_[begin].elapsedTime(events_[end]);
  }
  void restart() {
    moments_.clear();
    used_ = 0;
  }

 private:
  c10::Device device_;
  bool on_host_;
  double began_;
  std::vector<double> moments_;
  std::vector<c10::Event> events_;  // kept for the next step
  size_t used_ = 0;
};

// Lives from the begin to the end of a step.
struct StepClock::Listener : c10::DebugInfoBase {
  explicit Listener(StepClock& owner) : clock(owner) {}
  ~Listener() override = default;

  struct Open : at::ObserverContext {
    Open(StepClock& owner, TimeKind of)
        : clock(owner),
          kind(of),
          begin(owner.timeline_->mark()),
          processor(of == TimeKind::communication ? owner.phases_.processor() : 0) {}
    StepClock& clock;
    TimeKind kind;
    size_t begin;
    double processor;
  };

  static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& record) {
    const std::optional<TimeKind> kind = kind_of_operation(record.name());
    if (!kind.has_value()) return nullptr;
    auto* self = dynamic_cast<Listener*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PRODUCER_INFO));
    if (self == nullptr || self->clock.inside_) return nullptr;
    self->clock.inside_ = true;
    return std::make_unique<Open>(self->clock, *kind);
  }
  static void after(const at::RecordFunction&, at::ObserverContext* context) {
    if (context == nullptr) return;
    const auto* open = static_cast<Open*>(context);
    StepClock& clock = open->clock;
    const size_t end = clock.timeline_->mark();
    clock.spans_.push_back({clock.current_, open->kind, open->begin, end});
    if (open->kind == TimeKind::communication)
      clock.phases_.communicated(open->begin, end, clock.phases_.processor() - open->processor);
    clock.inside_ = false;
  }

  StepClock& clock;
  std::optional<c10::DebugInfoGuard> guard;
  at::CallbackHandle callback = 0;
};

StepClock::StepClock(MultimodalModel& model)
    : model_(model),
      timeline_(std::make_unique<Timeline>(model.device())),
      phases_(timeline_->on_host()),
      cells_(kUnits) {
  model_.observers().add(*this);
}

StepClock::~StepClock() {
  model_.observers().remove(*this);
  stop_listening();
}

void StepClock::stop_listening() {
  if (listener_ == nullptr) return;
  at::removeCallback(listener_->callback);
  listener_->guard.reset();
  listener_.reset();
}

size_t StepClock::cell_of(StepAction action, const std::string& component, const std::string& unit) {
  if (action == StepAction::data || action == StepAction::batch) return kData;
  const bool pass = action == StepAction::forward || action == StepAction::backward;
  if (!pass) return kOptimizer;
  std::map<std::string, size_t>& units = known_[component];
  auto found = units.find(unit);
  if (found == units.end()) {
    found = units.emplace(unit, cells_.size()).first;
    names_.emplace_back(component, unit);
    cells_.resize(cells_.size() + 2);
  }
  return found->second + (action == StepAction::backward ? 1 : 0);
}

void StepClock::begin_step(double waited) {
  LOOM_CHECK(listener_ == nullptr, "a step is clocked inside another");
  std::fill(cells_.begin(), cells_.end(), Cell{});
  cells_[kData].whole = waited;
  timeline_->restart();
  spans_.clear();
  current_ = kOutside;
  inside_ = false;
  phases_.restart();
  timeline_->mark();
  began_ = host_seconds() - waited;
  waited_ = waited;
  listener_ = std::make_shared<Listener>(*this);
  listener_->guard.emplace(c10::DebugInfoKind::PRODUCER_INFO, listener_);
  at::RecordFunctionCallback callback(&Listener::before, &Listener::after);
  listener_->callback = at::addThreadLocalCallback(callback.scopes({at::RecordScope::FUNCTION}));
}

void StepClock::begin(StepAction action, const std::string& component, const std::string& unit) {
  if (listener_ == nullptr) return;
  current_ = cell_of(action, component, unit);
  cells_[current_].used = true;
  since_ = timeline_->mark();
  phases_.begin(action, component, since_);
}

void StepClock::end() {
  if (listener_ == nullptr || current_ == kOutside) return;
  const size_t mark = timeline_->mark();
  phases_.end(mark);
  spans_.push_back({current_, std::nullopt, since_, mark});
  current_ = kOutside;
}

std::vector<StepBar> StepClock::bars() const {
  constexpr double kFinest = 1.0 / 600;  // of a step: no screen shows more
  LOOM_CHECK(listener_ == nullptr, "bars of a step that has not ended");
  return phases_.bars([this](size_t begin, size_t end) { return timeline_->between(begin, end); }, kFinest * seconds_);
}

double StepClock::age() const { return host_seconds() - began_ - waited_; }

KindSeconds StepClock::kinds(size_t cell) const {
  KindSeconds out = cells_[cell].inside;
  out.other = std::max(0.0, cells_[cell].whole - out.total());
  return out;
}

StepTime StepClock::end_step() {
  LOOM_CHECK(listener_ != nullptr, "no step is clocked");
  stop_listening();
  timeline_->settle();
  StepTime out;
  out.seconds = seconds_ = host_seconds() - began_;
  out.phases = phases_.phases([this](size_t begin, size_t end) { return timeline_->between(begin, end); });
  out.compute = phases_.compute(out.phases);
  for (const Span& span : spans_) {
    Cell& cell = cells_[span.cell];
    const double seconds = timeline_->between(span.begin, span.end);
    if (!span.kind.has_value()) {
      cell.whole += seconds;
    } else if (*span.kind == TimeKind::gemm) {
      cell.inside.gemm += seconds;
    } else if (*span.kind == TimeKind::attention) {
      cell.inside.attention += seconds;
    } else {
      cell.inside.communication += seconds;
    }
  }
  out.passes = cells_[kOutside].inside;
  for (size_t unit = 0; unit < names_.size(); ++unit) {
    const size_t forward = kUnits + 2 * unit, backward = forward + 1;
    if (!cells_[forward].used && !cells_[backward].used) continue;
    UnitTime& time = out.units.emplace_back();
    time.component = names_[unit].first;
    time.unit = names_[unit].second;
    out.passes += time.forward = kinds(forward);
    out.passes += time.backward = kinds(backward);
  }
  for (const size_t cell : {kData, kOptimizer}) {
    const double apart = cells_[cell].inside.communication;
    out.passes.communication += apart;
    (cell == kData ? out.data : out.optimizer) = std::max(0.0, cells_[cell].whole - apart);
  }
  out.rest = std::max(0.0, out.seconds - out.passes.total() - out.optimizer - out.data);
  return out;
}

}  // namespace loom
