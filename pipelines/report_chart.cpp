// An axis maps values to shares of the plot; everything else is strings.
#include "pipelines/report_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/base/text.h"
#include "pipelines/report_page.h"

namespace loom {
namespace {

constexpr double kUnits = 1000;  // of the SVG's view box, both ways
constexpr size_t kWideBuckets = 320, kBuckets = 160, kMostDots = 40;

std::string text(const char* format, double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

struct Curve {
  const ChartSeries* series = nullptr;
  std::vector<Bucket> buckets;
  bool thinned() const { return series->points.size() > buckets.size(); }
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

Range values_of(const std::vector<Curve>& curves) {
  Range range;
  for (const Curve& curve : curves) {
    for (const Bucket& bucket : curve.buckets) {
      range.low = std::min(range.low, bucket.min);
      range.high = std::max(range.high, bucket.max);
    }
  }
  return range;
}

Axis value_axis(const Chart& chart, const Range& range) {
  if (chart.style == NumberStyle::percent && range.low >= 0 && range.high > 0.5 && range.high <= 1)
    return linear_axis(0, 1, 4);
  if (chart.may_log && range.low > 0 && range.high / range.low > 12) return log_axis(range.low, range.high);
  return linear_axis(chart.from_zero ? std::min(range.low, 0.0) : range.low, range.high, 4);
}

std::string point_text(const Axis& x, const Axis& y, double step, double value) {
  return text("%.1f", x.share(step) * kUnits) + " " + text("%.1f", (1 - y.share(value)) * kUnits);
}

// Band of extremes, line of means, and dots where points are few.
std::string curve_svg(const Curve& curve, const Axis& x, const Axis& y) {
  std::string line, band, back, dots;
  for (const Bucket& bucket : curve.buckets) {
    line += (line.empty() ? "M" : "L") + point_text(x, y, bucket.x, bucket.mean);
    band += (band.empty() ? "M" : "L") + point_text(x, y, bucket.x, bucket.max);
    dots += "M" + point_text(x, y, bucket.x, bucket.mean) + "h0";
  }
  for (auto bucket = curve.buckets.rbegin(); bucket != curve.buckets.rend(); ++bucket)
    back += "L" + point_text(x, y, bucket->x, bucket->min);
  const std::string& css = curve.series->css;
  std::string out;
  if (curve.thinned()) out += "<path class=\"band " + css + "\" d=\"" + band + back + "Z\"/>";
  out += "<path class=\"line " + css + "\" d=\"" + line + "\"/>";
  if (curve.buckets.size() <= kMostDots) out += "<path class=\"dots " + css + "\" d=\"" + dots + "\"/>";
  return out;
}

// What the script reads: steps and printed values.
std::string curve_data(const Curve& curve, NumberStyle style) {
  std::string steps, values, ranges;
  for (const Bucket& bucket : curve.buckets) {
    const char* comma = steps.empty() ? "" : ",";
    steps += comma + text("%.0f", bucket.x);
    values += comma + ("\"" + chart_number(bucket.mean, style) + "\"");
    ranges += comma + ("\"" + chart_number(bucket.min, style) + " – " + chart_number(bucket.max, style) + "\"");
  }
  return "{\"step\":[" + steps + "],\"value\":[" + values + "]" +
         (curve.thinned() ? ",\"range\":[" + ranges + "]" : "") + "}";
}

std::string legend_of(const std::vector<Curve>& curves, NumberStyle style) {
  std::string out;
  for (const Curve& curve : curves) {
    out += "<span class=\"key " + curve.series->css + "\">";
    if (curves.size() > 1) out += "<i></i>" + html_escape(curve.series->label) + " ";
    out += "<b>" + chart_number(curve.buckets.back().mean, style) + "</b></span>";
  }
  return out;
}

// The chart in words, for those who do not see it.
std::string spoken(const Chart& chart, const std::vector<Curve>& curves, const Range& range, double last) {
  std::string out = chart.title + ", steps up to " + text("%.0f", last);
  for (const Curve& curve : curves)
    out += ", " + (curves.size() > 1 ? curve.series->label + " " : std::string()) + "last " +
           chart_number(curve.buckets.back().mean, chart.style);
  return html_escape(out + ", lowest " + chart_number(range.low, chart.style) + ", highest " +
                     chart_number(range.high, chart.style));
}

}  // namespace

std::string chart_html(const Chart& chart) {
  std::vector<Curve> curves;
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const ChartSeries& series : chart.series) {
    if (series.points.empty()) continue;
    curves.push_back({&series, thin_out(series.points, chart.wide ? kWideBuckets : kBuckets)});
    first = std::min(first, series.points.front().first);
    last = std::max(last, series.points.back().first);
  }
  if (curves.empty()) return "";

  Axis x = linear_axis(std::min(first, 1.0) - 1, last, chart.wide ? 6 : 4);
  x.high = last > x.low ? last : x.low + 1;
  std::erase_if(x.ticks, [&](double tick) { return tick > x.high || tick != std::round(tick); });
  const Range range = values_of(curves);
  const Axis y = value_axis(chart, range);

  std::string grid, y_labels, x_labels, lines, data;
  const std::vector<std::string> y_texts = tick_texts(y, chart.style);
  for (size_t i = 0; i < y.ticks.size(); ++i) {
    const double down = 1 - y.share(y.ticks[i]);
    grid += "<path class=\"grid\" d=\"M0 " + text("%.1f", down * kUnits) + "H1000\"/>";
    y_labels += "<span style=\"top:" + text("%.2f", down * 100) + "%\">" + y_texts[i] + "</span>";
  }
  for (const double tick : x.ticks) {
    x_labels += std::string("<span") + (x.share(tick) > 0.97 ? " class=\"end\"" : "") +
                " style=\"left:" + text("%.2f", x.share(tick) * 100) + "%\">" +
                (tick >= 1e5 ? human_count(tick) : with_commas(std::llround(tick))) + "</span>";
  }
  for (const Curve& curve : curves) {
    lines += curve_svg(curve, x, y);
    data += (data.empty() ? "" : ",") + curve_data(curve, chart.style);
  }
  return std::string("<figure class=\"chart") + (chart.wide ? " wide" : "") + "\"><figcaption><span class=\"name\">" +
         html_escape(chart.title) + (y.log ? " <em>log scale</em>" : "") + "</span><span class=\"legend\">" +
         legend_of(curves, chart.style) + "</span></figcaption><div class=\"plot\"><div class=\"y\">" + y_labels +
         "</div><div class=\"area\" tabindex=\"0\" role=\"img\" aria-label=\"" + spoken(chart, curves, range, last) +
         "\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" aria-hidden=\"true\">" + grid + lines +
         "</svg></div><div class=\"x\">" + x_labels +
         "</div></div><script type=\"application/json\">{\"low\":" + text("%.0f", x.low) +
         ",\"high\":" + text("%.0f", x.high) + ",\"curves\":[" + data + "]}</script></figure>\n";
}

}  // namespace loom
