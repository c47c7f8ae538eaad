#pragma once
// The report's section on time: what the last steps were spent on, which component and unit took how much and how fast
// it computed, and how that changed over the run. All of it is read from metrics.jsonl and timing.jsonl.
#include <string>

namespace loom {

struct TimingSection {
  std::string aside, body;  // empty where the files say nothing of times
};

// `peak`: measured floating-point operations per second; 0 = not known.
TimingSection timing_html(const std::string& metrics_file, const std::string& timing_file, double peak);

}  // namespace loom
