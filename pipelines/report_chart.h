#pragma once
// Curves as HTML: lines are an SVG stretched to its box (strokes keep their width), ticks and labels are text beside
// it, so the same markup reads well on a phone and on a wide screen without any script. A script adds the read-out
// under the pointer and under the arrow keys.
#include <string>
#include <vector>

#include "pipelines/report_axis.h"
#include "pipelines/report_metrics.h"

namespace loom {

struct ChartSeries {
  std::string label;
  std::string css;  // colour class: "a", "b", or "t1" to "t7"
  Points points;
};

struct Chart {
  std::string title;
  NumberStyle style = NumberStyle::plain;
  bool from_zero = false;  // the axis starts at zero
  bool may_log = false;    // a logarithmic axis where values span more than a factor of 12
  bool wide = false;
  std::vector<ChartSeries> series;  // empty ones are left out
};

// A <figure>; an empty string when no series has a point. Long curves are thinned out to lines of means over bands from
// the lowest to the highest value, so single steps that stand out stay visible.
std::string chart_html(const Chart& chart);

}  // namespace loom
