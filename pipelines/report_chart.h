#pragma once
// Curves as HTML: lines are an SVG stretched to its box (strokes keep their width), ticks and labels are text beside
// it, so the same markup reads well on a phone and on a wide screen without any script. A script adds the read-out
// under the pointer.
#include <map>
#include <string>
#include <vector>

#include "pipelines/report_metrics.h"

namespace loom {

enum class NumberStyle { plain = 1, percent, count };

struct ChartSeries {
  std::string label;
  std::string css;  // colour class: "a" or "b"
  Points points;
};

struct Chart {
  std::string title;
  NumberStyle style = NumberStyle::plain;
  bool from_zero = false;  // the axis starts at zero
  bool may_log = false;    // a logarithmic axis where values span more than a factor of 30
  bool wide = false;
  std::vector<ChartSeries> series;  // empty ones are left out
};

// A <figure>; an empty string when no series has a point.
std::string chart_html(const Chart& chart);
// The charts of a training run, most important first.
std::vector<Chart> training_charts(const std::map<std::string, Points>& metrics);
// "0.0412", "84.2 %", "23.1K".
std::string chart_number(double value, NumberStyle style);

}  // namespace loom
