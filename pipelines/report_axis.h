#pragma once
// Axes of the report's charts: range, round ticks, and their words. All ticks of an axis have the same unit and the
// same number of digits.
#include <string>
#include <vector>

namespace loom {

enum class NumberStyle { plain = 1, percent, count, bytes, flops };

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;

  double share(double value) const;  // 0 at low, 1 at high
};

// Ends on round numbers, with about `parts` steps between ticks.
Axis linear_axis(double low, double high, int parts);
// low > 0. Ends near the data.
Axis log_axis(double low, double high);
std::vector<std::string> tick_texts(const Axis& axis, NumberStyle style);
// A value by itself: "0.0412", "84.2 %", "23.1K", "1.9 GB".
std::string chart_number(double value, NumberStyle style);
// "0.123 ms", "12.3 ms", "1.23 s": three digits are enough to compare.
std::string time_text(double seconds);

}  // namespace loom
