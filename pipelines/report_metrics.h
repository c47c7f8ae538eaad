#pragma once
// The lines of metrics.jsonl as curves, thinned out to what a curve on a screen can show.
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace loom {

using Points = std::vector<std::pair<double, double>>;  // (step, value), steps ascending

// All finite numbers of a metrics file by name. Of several lines of one step the later wins. A missing file has none.
std::map<std::string, Points> metric_curves(const std::string& path);

// One point of a thinned curve: the mean of a run of points, and their extremes.
struct Bucket {
  double x = 0, mean = 0, min = 0, max = 0;
};

// At most `buckets` of them, of equal counts; fewer points are kept as they are.
std::vector<Bucket> thin_out(const Points& points, size_t buckets);

}  // namespace loom
