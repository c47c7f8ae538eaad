#pragma once
// samples.jsonl of a run: what the model answered to a few held-out samples at each evaluation. A line per answer; the
// first line of a sample also holds its picture, as PNG. The report is made from it, also after a resume.
#include <cstdint>
#include <string>
#include <vector>

#include "pipelines/evaluator.h"
#include "pipelines/report.h"

namespace loom {

class SampleLog {
 public:
  // Reads what is there; lines that are cut off or not ours are left out.
  explicit SampleLog(std::string path);
  // Takes over the answers of an evaluation; those of the same step and sample are replaced.
  void add(int64_t step, const std::vector<EvalSample>& samples);
  // add(), and appends them to the file in one write. EnvironmentError.
  void append(int64_t step, const std::vector<EvalSample>& samples);
  // On resume from step: forgets later answers, here and in the file.
  void truncate_after(int64_t step);
  // Those of the newest evaluation first, in its order; outputs newest first.
  std::vector<ReportSample> samples() const;

 private:
  ReportSample& entry(const std::string& name);
  void note(ReportSample& sample, ReportOutput output);

  std::string path_;
  std::vector<ReportSample> samples_;  // in order of first appearance
};

}  // namespace loom
