#pragma once
// metrics.jsonl: one JSON object per line and step, appended and flushed at once, so that a killed run has every line
// it printed. Numbers are written with the fewest digits that read back to the same bits: two runs are compared by
// comparing files.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace loom {

// JSON has no NaN or infinity: they are written as the strings "nan", "inf", "-inf" and read back as numbers.
using MetricValue = std::variant<double, int64_t, std::string>;

struct MetricsLine {
  int64_t step = 0;
  std::vector<std::pair<std::string, MetricValue>> values;  // in this order

  MetricsLine& add(std::string name, MetricValue value);
  const MetricValue* find(const std::string& name) const;  // null pointer when absent
  double number(const std::string& name, double absent) const;
};

// {"step":12,"loss":0.41,...} without a newline.
std::string metrics_json(const MetricsLine& line);

class MetricsWriter {
 public:
  // Opens for appending; a torn last line (the process was killed inside a write) is cut off. EnvironmentError.
  explicit MetricsWriter(std::string path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // On failure (EnvironmentError) the file ends with the last complete line.
  void write(const MetricsLine& line) { write_json(metrics_json(line)); }
  // Any other object that begins with its step, on one line.
  void write_json(const std::string& object);
  // On resume from step: drops the lines of later steps, and what cannot be read. Kept lines do not change by a byte.
  void truncate_after(int64_t step);
  const std::string& path() const { return path_; }

 private:
  void open();
  void close();

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// Calls use(line) for every readable line of the file, one in memory at a time; a torn last line is left out. UserError
// when the file is missing.
void for_each_metrics_line(const std::string& path, const std::function<void(const MetricsLine&)>& use);
// All of them at once.
std::vector<MetricsLine> read_metrics(const std::string& path);

}  // namespace loom
