// Files only; what is in them is report_page's matter.
#include "pipelines/report.h"

#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "pipelines/report_page.h"

namespace loom {

void write_report(const std::string& run_dir, const ReportData& data) {
  write_file_atomic(run_dir + "/report.html", report_html(data));
}

void write_summary(const std::string& run_dir, const Summary& summary) {
  nlohmann::ordered_json json;
  const auto share = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  json["exact_match"] = share(summary.exact_match);
  json["exact_match_swapped"] = share(summary.exact_match_swapped);
  json["samples"] = summary.samples;
  json["train_seconds"] = summary.train_seconds;
  json["steps"] = summary.steps;
  write_file_atomic(run_dir + "/summary.json", json.dump(2) + "\n");
}

}  // namespace loom
