#pragma once
// What a run leaves for people: report.html, one page without external files that opens from a folder, a mail or a web
// server, and summary.json, the few numbers that scripts ask for.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace loom {

// A large figure of the headline: {"Exact match", "84.2 %", "10,000 unseen pictures"}.
struct ReportNumber {
  std::string label, value, note{};
};

struct ReportFact {
  std::string key, value;
};

struct ReportSample {
  Tensor picture;  // uint8 [height, width, channels]; undefined = text only
  std::string truth, output;
  bool correct = false;
};

struct ReportSkip {
  std::string reason;
  int64_t count = 0;
};

struct ReportData {
  std::string title;     // the run's name
  std::string subtitle;  // what, on what: "vit 0.5M, mlp 0.1M and llama 0.6M on 60,000 pictures with captions"
  std::string state;     // "finished", "running", "interrupted"
  int64_t step = 0, steps = 0;
  std::vector<ReportNumber> numbers;  // the most important first
  std::vector<ReportFact> facts;      // device, versions, data, seeds ...
  std::string metrics_file;           // metrics.jsonl; missing = no curves
  std::vector<ReportSample> samples;  // newest first
  std::string samples_note;           // "from the test split, greedy decoding"
  std::vector<ReportSkip> skipped;
  std::string recipe;  // YAML
};

// Replaces RUN/report.html at once; may be called while the run goes on. EnvironmentError when it cannot be written.
void write_report(const std::string& run_dir, const ReportData& data);

struct Summary {
  std::optional<double> exact_match, exact_match_swapped;  // shares in [0, 1]; absent = null
  int64_t samples = 0;
  double train_seconds = 0;
  int64_t steps = 0;
};

// Replaces RUN/summary.json.
void write_summary(const std::string& run_dir, const Summary& summary);

}  // namespace loom
