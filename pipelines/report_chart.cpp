// An axis maps values to shares of the plot; everything else is strings.
#include "pipelines/report_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/base/text.h"
#include "pipelines/report_page.h"

namespace loom {
namespace {

constexpr double kUnits = 1000;  // of the SVG's view box, both ways
constexpr size_t kWideBuckets = 320, kBuckets = 160;

std::string text(const char* format, double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;

  double share(double value) const {  // 0 at low, 1 at high
    if (log) return (std::log(std::max(value, low * 1e-3)) - std::log(low)) / (std::log(high) - std::log(low));
    return (value - low) / (high - low);
  }
};

double nice_step(double span, int parts) {
  const double raw = span / parts;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

Axis linear_axis(double low, double high, int parts) {
  if (!(high > low)) high = low + (low != 0 ? std::abs(low) * 0.1 : 1);
  Axis axis;
  const double step = nice_step(high - low, parts);
  axis.low = std::floor(low / step + 1e-9) * step;
  axis.high = std::ceil(high / step - 1e-9) * step;
  for (double tick = axis.low; tick <= axis.high + step * 0.01; tick += step)
    axis.ticks.push_back(std::abs(tick) < step * 1e-6 ? 0 : tick);
  return axis;
}

Axis log_axis(double low, double high) {
  Axis axis;
  axis.log = true;
  axis.low = low * 0.9;
  axis.high = high * 1.1;
  const bool coarse = high / low > 500;
  for (double decade = std::pow(10, std::floor(std::log10(axis.low))); decade < axis.high; decade *= 10) {
    for (const double factor : coarse ? std::vector<double>{1} : std::vector<double>{1, 2, 5}) {
      if (decade * factor >= axis.low && decade * factor <= axis.high) axis.ticks.push_back(decade * factor);
    }
  }
  return axis;
}

Axis value_axis(const Chart& chart, const std::vector<std::vector<Bucket>>& curves) {
  double low = std::numeric_limits<double>::infinity(), high = -low, mean_high = -low, mean_low = low;
  for (const std::vector<Bucket>& curve : curves) {
    for (const Bucket& bucket : curve) {
      low = std::min(low, bucket.min);
      high = std::max(high, bucket.max);
      mean_low = std::min(mean_low, bucket.mean);
      mean_high = std::max(mean_high, bucket.mean);
    }
  }
  if (chart.style == NumberStyle::percent && high > 0.5) high = std::max(high, 1.0);
  // One wild step must not flatten the rest.
  high = std::min(high, mean_high + 0.5 * (mean_high - mean_low) + 1e-12 * std::abs(mean_high));
  high = std::max(high, mean_high);
  if (chart.style == NumberStyle::percent && mean_high > 0.5) high = 1;
  if (chart.may_log && low > 0 && high / low > 30) return log_axis(low, high);
  return linear_axis(chart.from_zero ? std::min(low, 0.0) : low, high, 4);
}

std::string point_text(const Axis& x, const Axis& y, double step, double value) {
  return text("%.1f", x.share(step) * kUnits) + " " + text("%.1f", (1 - y.share(value)) * kUnits);
}

// Band of extremes, line of means, and dots where points are few.
std::string curve_svg(const std::vector<Bucket>& curve, const ChartSeries& series, const Axis& x, const Axis& y) {
  std::string line, band_up, band_down, dots;
  for (const Bucket& bucket : curve) {
    line += (line.empty() ? "M" : "L") + point_text(x, y, bucket.x, bucket.mean);
    band_up += (band_up.empty() ? "M" : "L") + point_text(x, y, bucket.x, bucket.max);
    dots += "M" + point_text(x, y, bucket.x, bucket.mean) + "h0";
  }
  for (auto bucket = curve.rbegin(); bucket != curve.rend(); ++bucket)
    band_down += "L" + point_text(x, y, bucket->x, bucket->min);
  std::string out;
  if (series.points.size() > curve.size())
    out += "<path class=\"band " + series.css + "\" d=\"" + band_up + band_down + "Z\"/>";
  out += "<path class=\"line " + series.css + "\" d=\"" + line + "\"/>";
  if (curve.size() <= 40) out += "<path class=\"dots " + series.css + "\" d=\"" + dots + "\"/>";
  return out;
}

// What the script reads: shares of the plot and printed values.
std::string curve_data(const std::vector<Bucket>& curve, const ChartSeries& series, const Axis& x, NumberStyle style) {
  std::string xs, steps, values;
  for (const Bucket& bucket : curve) {
    const char* comma = xs.empty() ? "" : ",";
    xs += comma + text("%.4f", x.share(bucket.x));
    steps += comma + text("%.0f", bucket.x);
    values += comma + ("\"" + chart_number(bucket.mean, style) + "\"");
  }
  return "{\"label\":\"" + series.label + "\",\"x\":[" + xs + "],\"step\":[" + steps + "],\"value\":[" + values + "]}";
}

}  // namespace

std::string chart_number(double value, NumberStyle style) {
  if (style == NumberStyle::percent) return text("%.1f", value * 100) + " %";
  const double size = std::abs(value);
  if (style == NumberStyle::count || size >= 1e4) return size >= 1000 ? human_count(value) : text("%.0f", value);
  if (size != 0 && size < 1e-3) return text("%.1e", value);
  return text(size >= 100 ? "%.0f" : size >= 1 ? "%.3f" : "%.4f", value);
}

namespace {

// A tick needs fewer digits than a value.
std::string tick_text(double value, const Axis& axis, NumberStyle style) {
  if (style == NumberStyle::percent) return text("%.4g", value * 100) + " %";
  if (std::abs(value) >= 1e4 || style == NumberStyle::count)
    return std::abs(value) >= 1000 ? human_count(value) : text("%.4g", value);
  const double span = axis.log ? value : axis.high - axis.low;
  return text(span < 1e-3 ? "%.1e" : "%.4g", value);
}

}  // namespace

std::string chart_html(const Chart& chart) {
  std::vector<const ChartSeries*> shown;
  std::vector<std::vector<Bucket>> curves;
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const ChartSeries& series : chart.series) {
    if (series.points.empty()) continue;
    shown.push_back(&series);
    curves.push_back(thin_out(series.points, chart.wide ? kWideBuckets : kBuckets));
    first = std::min(first, series.points.front().first);
    last = std::max(last, series.points.back().first);
  }
  if (shown.empty()) return "";

  Axis x = linear_axis(std::min(first, 1.0) - 1, last, chart.wide ? 6 : 4);
  x.high = last > x.low ? last : x.low + 1;
  std::erase_if(x.ticks, [&](double tick) { return tick > x.high; });
  const Axis y = value_axis(chart, curves);

  std::string grid, y_labels, x_labels, lines, legend, data;
  for (const double tick : y.ticks) {
    const double down = 1 - y.share(tick);
    grid += "<path class=\"grid\" d=\"M0 " + text("%.1f", down * kUnits) + "H1000\"/>";
    y_labels += "<span style=\"top:" + text("%.2f", down * 100) + "%\">" + tick_text(tick, y, chart.style) + "</span>";
  }
  for (const double tick : x.ticks) {
    x_labels += "<span style=\"left:" + text("%.2f", x.share(tick) * 100) + "%\">" +
                (tick >= 1e5 ? human_count(tick) : with_commas(std::llround(tick))) + "</span>";
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    lines += curve_svg(curves[i], *shown[i], x, y);
    legend += "<span class=\"key " + shown[i]->css + "\">" +
              (shown.size() > 1 ? "<i></i>" + shown[i]->label + " " : "") + "<b>" +
              chart_number(curves[i].back().mean, chart.style) + "</b></span>";
    data += (data.empty() ? "" : ",") + curve_data(curves[i], *shown[i], x, chart.style);
  }
  return std::string("<figure class=\"chart") + (chart.wide ? " wide" : "") + "\"><figcaption><span class=\"name\">" +
         html_escape(chart.title) + (y.log ? " <em>log scale</em>" : "") + "</span><span class=\"legend\">" + legend +
         "</span></figcaption><div class=\"plot\"><div class=\"y\">" + y_labels +
         "</div><div class=\"area\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" aria-hidden=\"true\">" +
         grid + lines + "</svg></div><div class=\"x\">" + x_labels + "</div></div><script type=\"application/json\">[" +
         data + "]</script></figure>\n";
}

namespace {

// Part over whole, step by step; steps that lack either are left out.
Points share_of(const Points& part, const Points& whole) {
  const std::map<double, double> wholes(whole.begin(), whole.end());
  Points out;
  for (const auto& [step, value] : part) {
    const auto at = wholes.find(step);
    if (at != wholes.end() && at->second > 0) out.emplace_back(step, value / at->second);
  }
  return out;
}

}  // namespace

std::vector<Chart> training_charts(const std::map<std::string, Points>& metrics) {
  const auto of = [&](const char* name) {
    const auto at = metrics.find(name);
    return at != metrics.end() ? at->second : Points{};
  };
  const auto one = [&](const char* title, NumberStyle style, bool from_zero, bool may_log, const char* css,
                       Points points) {
    return Chart{title, style, from_zero, may_log, false, {{title, css, std::move(points)}}};
  };
  const Chart loss{"Loss per supervised token",
                   NumberStyle::plain,
                   false,
                   true,
                   true,
                   {{"training", "a", of("loss")}, {"evaluation", "b", of("eval_loss")}}};
  return {loss,
          one("Exact match", NumberStyle::percent, true, false, "b", of("exact_match")),
          one("Learning rate", NumberStyle::plain, true, false, "a", of("lr")),
          one("Gradient norm, before clipping", NumberStyle::plain, false, true, "a", of("grad_norm")),
          one("Tokens per second", NumberStyle::count, true, false, "a", of("tokens_per_second")),
          one("Time spent waiting for data", NumberStyle::percent, true, false, "a",
              share_of(of("data_seconds"), of("seconds")))};
}

}  // namespace loom
