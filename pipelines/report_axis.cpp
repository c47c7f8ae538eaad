#include "pipelines/report_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/base/text.h"
#include "core/observe/progress.h"

namespace loom {
namespace {

std::string text(const char* format, double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

double nice_step(double span, int parts) {
  const double raw = span / parts;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

// So many that the step is written exactly.
int decimals_of(double step) {
  int decimals = 0;
  for (double scaled = step; decimals < 12 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled; ++decimals)
    scaled *= 10;
  return decimals;
}

// "2.5e-5": a mantissa without needless digits, an exponent without zeros.
std::string scientific(double value) {
  if (value == 0) return "0";
  const std::string whole = text("%.1e", value);
  const size_t e = whole.find('e');
  std::string mantissa = whole.substr(0, e);
  if (mantissa.ends_with(".0")) mantissa.resize(mantissa.size() - 2);
  return mantissa + "e" + std::to_string(std::atoi(whole.c_str() + e + 1));
}

struct Unit {
  double size;
  const char* suffix;
};

Unit unit_of(double largest, NumberStyle style) {
  if (style == NumberStyle::percent) return {0.01, " %"};
  static const Unit counts[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}};
  static const Unit bytes[] = {{1e12, " TB"}, {1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}};
  static const Unit flops[] = {{1e15, " PFLOP/s"}, {1e12, " TFLOP/s"}, {1e9, " GFLOP/s"}, {1e6, " MFLOP/s"}};
  const bool many = style == NumberStyle::count ? largest >= 1e3 : style != NumberStyle::plain || largest >= 1e4;
  if (!many) return {1, ""};
  for (const Unit& unit : style == NumberStyle::bytes ? bytes : style == NumberStyle::flops ? flops : counts) {
    if (largest >= unit.size) return unit;
  }
  return {1, ""};
}

}  // namespace

double Axis::share(double value) const {
  if (log) return (std::log(std::max(value, low * 1e-3)) - std::log(low)) / (std::log(high) - std::log(low));
  return (value - low) / (high - low);
}

Axis linear_axis(double low, double high, int parts) {
  if (!(high - low > 1e-9 * std::max(std::abs(high), std::abs(low)))) high = low + (low != 0 ? std::abs(low) * 0.1 : 1);
  Axis axis;
  const double step = nice_step(high - low, parts);
  axis.low = std::floor(low / step + 1e-9) * step;
  axis.high = std::ceil(high / step - 1e-9) * step;
  const auto count = static_cast<int>(std::lround((axis.high - axis.low) / step));
  for (int i = 0; i <= count; ++i) {
    const double tick = axis.low + i * step;
    axis.ticks.push_back(std::abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return axis;
}

Axis log_axis(double low, double high) {
  Axis axis;
  axis.log = true;
  axis.low = low * 0.9;
  axis.high = high * 1.1;
  const double ratio = axis.high / axis.low;
  int every = 1;  // decades per tick
  while (std::log10(ratio) / every > 6) ++every;
  const std::vector<double> factors = ratio > 500  ? std::vector<double>{1}
                                      : ratio > 60 ? std::vector<double>{1, 3}
                                                   : std::vector<double>{1, 2, 5};
  const auto first = static_cast<int>(std::floor(std::log10(axis.low)));
  for (int decade = first; std::pow(10, decade) < axis.high; ++decade) {
    if ((decade - first) % every != 0) continue;
    for (const double factor : factors) {
      const double tick = std::pow(10, decade) * factor;
      if (tick >= axis.low && tick <= axis.high) axis.ticks.push_back(tick);
    }
  }
  return axis;
}

std::vector<std::string> tick_texts(const Axis& axis, NumberStyle style) {
  std::vector<std::string> out;
  double largest = 0;
  for (const double tick : axis.ticks) largest = std::max(largest, std::abs(tick));
  const Unit unit = unit_of(largest, style);
  const double step = axis.ticks.size() > 1 ? axis.ticks[1] - axis.ticks[0] : 0;
  const int decimals = step > 0 ? decimals_of(step / unit.size) : 2;
  for (const double tick : axis.ticks) {
    if (tick == 0) {
      out.push_back(style == NumberStyle::percent ? "0 %" : "0");
    } else if (axis.log) {
      const Unit own = unit_of(tick, style);
      const bool tiny = tick < 0.9995e-3 && style == NumberStyle::plain;
      out.push_back(tiny ? scientific(tick) : text("%.4g", tick / own.size) + own.suffix);
    } else if (style == NumberStyle::plain && decimals > 4) {
      out.push_back(scientific(tick));
    } else {
      out.push_back(fixed(tick / unit.size, decimals) + unit.suffix);
    }
  }
  return out;
}

std::string chart_number(double value, NumberStyle style) {
  if (style == NumberStyle::percent) return text("%.1f", value * 100) + " %";
  if (style == NumberStyle::bytes) return human_bytes(value);
  if (style == NumberStyle::flops) return human_flops(value);
  const double size = std::abs(value);
  if (style == NumberStyle::count || size >= 1e4) return size >= 1000 ? human_count(value) : text("%.0f", value);
  if (size != 0 && size < 1e-3) return scientific(value);
  return text(size >= 100 ? "%.0f" : size >= 10 ? "%.2f" : size >= 1 ? "%.3f" : "%.4f", value);
}

std::string time_text(double seconds) {
  char text[48];
  const double ms = 1e3 * seconds;
  if (seconds >= 0.9995) {
    std::snprintf(text, sizeof text, "%.3g s", seconds);
  } else {
    std::snprintf(text, sizeof text,
                  ms >= 99.95    ? "%.0f ms"
                  : ms >= 9.995  ? "%.1f ms"
                  : ms >= 0.9995 ? "%.2f ms"
                                 : "%.3f ms",
                  ms);
  }
  return text;
}

}  // namespace loom
