#include "pipelines/step_profile.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"

namespace loom {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities_of(c10::Device device) {
  std::set<ActivityType> out{ActivityType::CPU};
  if (device.is_cuda()) out.insert(ActivityType::CUDA);
  return out;
}

const char* words(StepAction action) {
  switch (action) {
    case StepAction::forward:
      return "forward";
    case StepAction::backward:
      return "backward";
    case StepAction::batch:
      return "batch";
    case StepAction::gradients:
      return "clear gradients";
    case StepAction::norm:
      return "gradient norm";
    case StepAction::update:
      return "optimizer";
    case StepAction::data:
      return "data wait";
  }
  return "";
}

int64_t step_number(const std::string& text, std::string_view part) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), out);
  LOOM_CHECK_USER(error == std::errc() && end == part.data() + part.size() && out >= 1, "--profile-steps ", text,
                  ": expected FIRST:LAST, the numbers of two steps, as in 3:5");
  return out;
}

}  // namespace

ProfileRange parse_profile_steps(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string_view view = text;
  ProfileRange range;
  range.first = range.last = step_number(text, view.substr(0, colon));
  if (colon != std::string::npos) range.last = step_number(text, view.substr(colon + 1));
  LOOM_CHECK_USER(range.first <= range.last, "--profile-steps ", text, ": step ", range.last, " comes before step ",
                  range.first);
  return range;
}

// A named range of the trace for as long as it lives.
struct StepProfile::Range {
  explicit Range(const std::string& name) : record(at::RecordScope::USER_SCOPE) {
    if (record.isActive()) record.before(name);
  }
  at::RecordFunction record;
};

StepProfile::StepProfile(MultimodalModel& model, std::string file, ProfileRange range)
    : model_(model), file_(std::move(file)), range_(range) {
  const std::filesystem::path folder = std::filesystem::path(file_).parent_path();
  if (!folder.empty()) make_dirs(folder.string());
  std::FILE* probe = std::fopen(file_.c_str(), "wbe");
  if (probe == nullptr) throw_file_error("write", file_, errno);
  std::fclose(probe);
  model_.observers().add(*this);
}

StepProfile::~StepProfile() {
  model_.observers().remove(*this);
  action_.reset();
  step_.reset();
  if (recording_) {
    try {
      kineto::disableProfiler();
    } catch (const std::exception&) {  // the run fails already, for another reason
    }
  }
  std::error_code ignored;
  if (!over_) std::filesystem::remove(file_, ignored);  // nothing was recorded
}

void StepProfile::begin_step(int64_t step) {
  if (over_ || step < range_.first || step > range_.last) return;
  if (!recording_) {
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    const std::set<ActivityType> activities = activities_of(model_.device());
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(
        config, activities,
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
    recording_ = true;
    first_ = step;
  }
  step_ = std::make_unique<Range>(concat("step ", step));
}

void StepProfile::end_step(int64_t step) {
  if (!recording_) return;
  step_.reset();
  last_ = step;
  if (step >= range_.last) finish();
}

void StepProfile::finish() {
  if (!recording_) return;
  action_.reset();
  step_.reset();
  recording_ = false;
  over_ = true;
  const auto result = kineto::disableProfiler();
  result->save(file_);
  std::error_code unknown;
  if (std::filesystem::file_size(file_, unknown) == 0 || unknown) {
    log_warn("no profile: LibTorch did not write ", file_);
    return;
  }
  log_info("profile step", first_ == last_ ? concat(" ", first_) : concat("s ", first_, " to ", last_), " · ", file_,
           " · open it in Perfetto (ui.perfetto.dev) or chrome://tracing");
}

void StepProfile::begin(StepAction action, const std::string& component, const std::string& unit) {
  if (!recording_) return;
  action_ =
      std::make_unique<Range>(component.empty() ? words(action) : concat(component, ".", unit, " ", words(action)));
}

void StepProfile::end() { action_.reset(); }

}  // namespace loom
