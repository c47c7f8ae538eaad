#pragma once
// What a run leaves for people and scripts: report.html, one page without external files that opens from a folder, a
// mail or a web server, also while the run goes on; and summary.json, the few numbers that scripts ask for.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loom {

// A large figure of the headline: {"Exact match", "84.2 %", "10,000 unseen pictures"}.
struct ReportNumber {
  std::string label, value, note{};
};

struct ReportFact {
  std::string key, value;
};

struct ReportOutput {
  int64_t step = 0;
  std::string text;
  bool correct = false;
};

struct ReportSample {
  std::string png{};  // the picture's file; empty = text only
  std::string name{}, prompt{}, truth{};
  std::vector<ReportOutput> outputs{};  // newest first
};

struct ReportSkip {
  std::string kind;  // the reason without names and numbers
  int64_t count = 0;
  std::string example{};
};

// What one component is and takes, per rank. Bytes of -1 are not known; a column that no row knows is left out.
struct ReportPlanRow {
  std::string component{};
  int64_t params = 0;
  std::string layout{};
  int64_t weights = -1, gradients = -1, optimizer = -1, activations = -1;
};

struct ReportData {
  std::string title;     // the run's name
  std::string subtitle;  // what, on what: "vit 0.5M, mlp 0.1M and llama 0.6M on 60,000 pictures with captions"
  std::string state;     // "finished", "running", "interrupted", "failed"
  std::string note;      // about the state: the error of a failed run
  std::string updated;   // when this was written: "2025-06-01 12:30:05"
  int64_t step = 0, steps = 0;
  std::vector<ReportNumber> numbers;  // the most important first
  std::vector<ReportFact> facts;      // device, versions, data, seeds ...
  std::string metrics_file;           // metrics.jsonl; missing = no curves
  std::string timing_file;            // timing.jsonl; missing = no times of units
  std::string ranks_file;             // ranks.jsonl; missing = no comparison of ranks
  std::string timeline_file;          // timeline.json; missing = no picture of a step
  double peak = 0;                    // measured floating-point operations per second; 0 = not known
  std::vector<ReportSample> samples;  // newest first
  std::string samples_note;           // "from the test split, greedy decoding"
  std::vector<ReportPlanRow> plan;
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
