// Colours are by kind and the same everywhere in the section (classes t1 to t7 of the style sheet); every colour stands
// beside its name and number.
#include "pipelines/report_timing.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <vector>

#include "core/base/text.h"
#include "core/observe/progress.h"
#include "pipelines/report_axis.h"
#include "pipelines/report_chart.h"
#include "pipelines/report_metrics.h"
#include "pipelines/report_page.h"
#include "pipelines/step_timing.h"

namespace loom {
namespace {

constexpr size_t kLastSteps = 20;
constexpr size_t kUnitsShown = 24;  // more are folded

struct Kind {
  const char* metric;
  const char* title;
  const char* css;
};

constexpr std::array<Kind, 7> kKinds = {{{"time/gemm", "GEMM", "t1"},
                                         {"time/attention", "attention", "t2"},
                                         {"time/communication", "communication", "t3"},
                                         {"time/other", "other work of units", "t4"},
                                         {"time/optimizer", "optimizer", "t5"},
                                         {"time/data", "data", "t6"},
                                         {"time/rest", "between", "t7"}}};

std::string text(const char* pattern, double value) {
  std::array<char, 48> out{};
  std::snprintf(out.data(), out.size(), pattern, value);
  return out.data();
}

double mean_of_last(const Points& points) {
  const size_t count = std::min(points.size(), kLastSteps);
  double sum = 0;
  for (size_t i = points.size() - count; i < points.size(); ++i) sum += points[i].second;
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

// One bar for the mean of the last steps, with its parts named below.
std::string bar(const std::map<std::string, Points>& metrics, double step) {
  std::string parts, names, spoken;
  for (const Kind& kind : kKinds) {
    const auto points = metrics.find(kind.metric);
    if (points == metrics.end()) continue;
    const double seconds = mean_of_last(points->second), share = seconds / step;
    parts += std::string("<i class=\"") + kind.css + "\" style=\"width:" + text("%.2f", 100 * share) + "%\"></i>";
    names += std::string("<li class=\"") + kind.css + "\"><i></i>" + kind.title + " <b>" + percent_text(share) +
             "</b> <span>" + time_text(seconds) + "</span></li>";
    spoken += (spoken.empty() ? "" : ", ") + std::string(kind.title) + " " + percent_text(share);
  }
  return "<div class=\"bar\" role=\"img\" aria-label=\"" + spoken + "\">" + parts + "</div>\n<ul class=\"parts\">" +
         names + "</ul>\n";
}

struct Row {
  std::string name;
  KindSeconds forward, backward;
  double flops = 0;
};

Row row_of(const TimedUnit& unit) { return {unit.unit, unit.forward, unit.backward, unit.flops}; }

// "encoders.image.blocks.0" is of "encoders.image"; units of the backbone begin with "backbone.".
std::string component_of(const std::string& unit) {
  const size_t first = unit.find('.');
  if (first == std::string::npos) return unit;
  const bool by_modality = unit.starts_with("encoders.") || unit.starts_with("connectors.");
  return unit.substr(0, by_modality ? std::min(unit.find('.', first + 1), unit.size()) : first);
}

std::vector<Row> by_component(const std::vector<TimedUnit>& units) {
  std::vector<Row> out;
  for (const TimedUnit& unit : units) {
    const std::string name = component_of(unit.unit);
    auto row = std::find_if(out.begin(), out.end(), [&](const Row& known) { return known.name == name; });
    if (row == out.end()) {
      out.emplace_back().name = name;
      row = out.end() - 1;
    }
    row->forward += unit.forward;
    row->backward += unit.backward;
    row->flops += unit.flops;
  }
  return out;
}

struct Column {
  const char* title;
  std::function<std::string(const Row&)> text;
};

// A column that no row has anything for is left out.
std::string table(const char* what, const std::vector<Row>& rows, double step, double peak) {
  const auto both = [](const Row& row) {
    KindSeconds sum = row.forward;
    return sum += row.backward;
  };
  const auto rate = [&](const Row& row) { return row.flops / both(row).total(); };
  const auto known = [&](const Row& row) { return row.flops > 0 && both(row).total() > 0; };
  const std::vector<Column> columns = {
      {"of a step", [&](const Row& row) { return percent_text(both(row).total() / step); }},
      {"forward", [&](const Row& row) { return time_text(row.forward.total()); }},
      {"backward", [&](const Row& row) { return row.backward.total() > 0 ? time_text(row.backward.total()) : ""; }},
      {"GEMM", [&](const Row& row) { return both(row).gemm > 0 ? time_text(both(row).gemm) : ""; }},
      {"attention", [&](const Row& row) { return both(row).attention > 0 ? time_text(both(row).attention) : ""; }},
      {"communication",
       [&](const Row& row) { return both(row).communication > 0 ? time_text(both(row).communication) : ""; }},
      {"other", [&](const Row& row) { return time_text(both(row).other); }},
      {"speed", [&](const Row& row) { return known(row) ? human_flops(rate(row)) : ""; }},
      {"of peak",
       [&](const Row& row) { return known(row) && peak > 0 ? percent_text(rate(row) / peak, "%.0f %%") : ""; }}};
  std::vector<const Column*> shown;
  for (const Column& column : columns) {
    if (std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return !column.text(row).empty(); }))
      shown.push_back(&column);
  }
  std::string out = std::string("<table class=\"times\"><thead><tr><th>") + what + "</th>";
  for (const Column* column : shown) out += std::string("<th class=\"n\">") + column->title + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const Row& row : rows) {
    out += "<tr><th>" + html_escape(row.name) + "</th>";
    for (const Column* column : shown) {
      const std::string cell = column->text(row);
      out += std::string("<td data-name=\"") + column->title + "\" class=\"n\">" +
             html_escape(cell.empty() ? "–" : cell) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string tables(const std::vector<TimedUnit>& units, double step, double peak) {
  if (units.empty()) return "";
  std::vector<Row> rows;
  for (const TimedUnit& unit : units) rows.push_back(row_of(unit));
  const bool open = rows.size() <= kUnitsShown;
  return table("component", by_component(units), step, peak) + "<details class=\"units\"" + (open ? " open" : "") +
         "><summary>" + with_commas(static_cast<int64_t>(rows.size())) + " units</summary>\n" +
         table("unit", rows, step, peak) + "</details>\n";
}

// Shares of a step, over steps.
std::string curves(const std::map<std::string, Points>& metrics) {
  const Points& whole = metrics.at("seconds");
  const std::map<double, double> seconds(whole.begin(), whole.end());
  Chart chart{"Shares of a step", NumberStyle::percent, true, false, true, {}};
  for (const Kind& kind : kKinds) {
    const auto points = metrics.find(kind.metric);
    if (points == metrics.end()) continue;
    ChartSeries series{kind.title, kind.css, {}};
    for (const auto& [step, value] : points->second) {
      if (const auto at = seconds.find(step); at != seconds.end() && at->second > 0)
        series.points.emplace_back(step, value / at->second);
    }
    chart.series.push_back(std::move(series));
  }
  return "<div class=\"charts\">\n" + chart_html(chart) + "</div>\n";
}

// "data took 0.1 % of the time, at most 12 ms in a step (step 1)"
std::string data_text(const std::map<std::string, Points>& metrics) {
  const auto data = metrics.find("time/data");
  if (data == metrics.end() || data->second.empty()) return "";
  double sum = 0, all = 0;
  std::pair<double, double> worst = data->second.front();
  for (const auto& point : data->second) {
    sum += point.second;
    if (point.second > worst.second) worst = point;
  }
  for (const auto& point : metrics.at("seconds")) all += point.second;
  if (all <= 0) return "";
  return "; data took " + percent_text(sum / all) + " of all steps, at most " + time_text(worst.second) + " (step " +
         with_commas(static_cast<int64_t>(worst.first)) + ")";
}

}  // namespace

TimingSection timing_html(const std::string& metrics_file, const std::string& timing_file, double peak) {
  const std::map<std::string, Points> metrics = metric_curves(metrics_file);
  const auto seconds = metrics.find("seconds");
  if (seconds == metrics.end() || metrics.find("time/rest") == metrics.end()) return {};
  const double step = mean_of_last(seconds->second);
  if (step <= 0) return {};
  const size_t steps = std::min(seconds->second.size(), kLastSteps);
  TimingSection out;
  out.aside = "<p>a step takes " + time_text(step) + ", mean of the last " + std::to_string(steps) +
              (steps == 1 ? " step" : " steps") + data_text(metrics) + "</p>";
  out.body = bar(metrics, step) + tables(mean_timing(timing_file, kLastSteps), step, peak) + curves(metrics);
  return out;
}

}  // namespace loom
