// Six digits are kept: what a clock says of a unit is not better than that, and the file is half as large.
#include "pipelines/step_timing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/observe/progress.h"
#include "pipelines/json_lines.h"

namespace loom {
namespace {

constexpr double kMostBytes = 20e6, kBytesPerUnit = 180;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string kinds_json(const KindSeconds& time) {
  std::string out = "{\"gemm\":" + number(time.gemm) + ",\"attention\":" + number(time.attention);
  if (time.communication > 0) out += ",\"communication\":" + number(time.communication);
  return out + ",\"other\":" + number(time.other) + "}";
}

KindSeconds kinds_of(const nlohmann::json& unit, const char* direction) {
  KindSeconds out;
  const auto found = unit.find(direction);
  if (found == unit.end() || !found->is_object()) return out;
  const auto read = [&](const char* kind) {
    const auto value = found->find(kind);
    return value != found->end() && value->is_number() ? value->get<double>() : 0.0;
  };
  out.gemm = read("gemm");
  out.attention = read("attention");
  out.communication = read("communication");
  out.other = read("other");
  return out;
}

KindSeconds scaled(const KindSeconds& time, double factor) {
  return {time.gemm * factor, time.attention * factor, time.communication * factor, time.other * factor};
}

std::string name_of(const UnitTime& time) { return time.component + "." + time.unit; }

}  // namespace

std::vector<std::pair<std::string, double>> seconds_by_kind(const StepTime& time) {
  return {
      {"gemm", time.passes.gemm},   {"attention", time.passes.attention}, {"communication", time.passes.communication},
      {"other", time.passes.other}, {"optimizer", time.optimizer},        {"data", time.data},
      {"rest", time.rest}};
}

void add_times(MetricsLine& line, const StepTime& time, bool alone) {
  for (const auto& [kind, seconds] : seconds_by_kind(time)) {
    if (kind == "communication" && alone && seconds == 0) continue;
    line.add("time/" + kind, seconds);
  }
}

void TimeTotals::add(int64_t step, const StepTime& time) {
  const auto kinds = seconds_by_kind(time);
  if (sums_.empty()) {
    sums_ = kinds;
  } else {
    for (size_t i = 0; i < kinds.size(); ++i) sums_[i].second += kinds[i].second;
  }
  seconds_ += time.seconds;
  const double data = time.seconds > 0 ? time.data / time.seconds : 0;
  if (worst_step_ > 0 && data <= worst_data_) return;
  worst_data_ = data;
  worst_step_ = step;
}

std::string TimeTotals::line() const {
  std::vector<std::string> parts;
  for (const auto& [kind, seconds] : sums_) {
    const std::string share = percent_text(seconds / seconds_, "%.0f %%");
    const bool always = kind != "communication" && kind != "rest";
    if (!always && share == "0 %") continue;
    parts.push_back(kind + " " + share);
    if (kind != "data" || worst_data_ < 0.005) continue;
    parts.back() += " (most: " + percent_text(worst_data_, "%.0f %%") + " of step " + with_commas(worst_step_) + ")";
  }
  return join(parts, " · ");
}

std::string timing_json(int64_t step, const StepTime& time, const std::map<std::string, double>& unit_flops) {
  std::string units;
  for (const UnitTime& unit : time.units) {
    const std::string name = name_of(unit);
    units += units.empty() ? "" : ",";
    units += "{\"unit\":" + nlohmann::json(name).dump() + ",\"forward\":" + kinds_json(unit.forward) +
             ",\"backward\":" + kinds_json(unit.backward);
    if (const auto flops = unit_flops.find(name); flops != unit_flops.end() && flops->second > 0)
      units += ",\"flops\":" + number(flops->second);
    units += "}";
  }
  return "{\"step\":" + std::to_string(step) + ",\"units\":[" + units + "]}";
}

int64_t line_interval(int64_t steps, double line_bytes) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(steps) * line_bytes / kMostBytes)));
}

int64_t timing_interval(int64_t steps, size_t units) {
  return line_interval(steps, static_cast<double>(units) * kBytesPerUnit);
}

std::vector<TimedUnit> mean_timing(const std::string& path, size_t lines) {
  std::vector<TimedUnit> out;
  if (!is_file(path)) return out;
  const std::string text = read_text(path);
  double count = 0;
  for (const std::string_view line : last_lines(text, lines)) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("units") || !json["units"].is_array()) continue;
    ++count;
    for (const nlohmann::json& unit : json["units"]) {
      if (!unit.is_object() || !unit.contains("unit") || !unit["unit"].is_string()) continue;
      const std::string name = unit["unit"].get<std::string>();
      auto place = std::find_if(out.begin(), out.end(), [&](const TimedUnit& known) { return known.unit == name; });
      if (place == out.end()) {
        out.emplace_back().unit = name;
        place = out.end() - 1;
      }
      place->forward += kinds_of(unit, "forward");
      place->backward += kinds_of(unit, "backward");
      if (unit.contains("flops") && unit["flops"].is_number()) place->flops += unit["flops"].get<double>();
    }
  }
  for (TimedUnit& unit : out) {
    unit.forward = scaled(unit.forward, 1 / count);
    unit.backward = scaled(unit.backward, 1 / count);
    unit.flops /= count;
  }
  return out;
}

}  // namespace loom
