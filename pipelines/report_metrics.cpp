// Nothing is known of the names here; which of them are drawn is report_chart's matter.
#include "pipelines/report_metrics.h"

#include <algorithm>
#include <cmath>

#include "core/base/file.h"
#include "core/observe/metrics.h"

namespace loom {

std::map<std::string, Points> metric_curves(const std::string& path) {
  std::map<std::string, Points> out;
  if (!is_file(path)) return out;
  for_each_metrics_line(path, [&](const MetricsLine& line) {
    const double step = static_cast<double>(line.step);
    for (const auto& [name, value] : line.values) {
      if (std::holds_alternative<std::string>(value)) continue;
      const double number = line.number(name, 0);
      if (!std::isfinite(number)) continue;
      Points& points = out[name];
      const auto place = std::lower_bound(points.begin(), points.end(), step,
                                          [](const auto& point, double wanted) { return point.first < wanted; });
      if (place != points.end() && place->first == step) {
        place->second = number;
      } else {
        points.insert(place, {step, number});
      }
    }
  });
  return out;
}

std::vector<Bucket> thin_out(const Points& points, size_t buckets) {
  std::vector<Bucket> out;
  const size_t count = points.size(), parts = std::min(buckets, count);
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * count / parts, end = (part + 1) * count / parts;
    Bucket bucket{0, 0, points[begin].second, points[begin].second};
    for (size_t i = begin; i < end; ++i) {
      bucket.x += points[i].first / static_cast<double>(end - begin);
      bucket.mean += points[i].second / static_cast<double>(end - begin);
      bucket.min = std::min(bucket.min, points[i].second);
      bucket.max = std::max(bucket.max, points[i].second);
    }
    out.push_back(bucket);
  }
  return out;
}

}  // namespace loom
