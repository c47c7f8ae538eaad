#pragma once
// Skipped samples by kind: the same defect in a thousand files is one line with a count and an example.
#include <string>
#include <vector>

#include "core/data/skip_journal.h"
#include "pipelines/report.h"

namespace loom {

// A reason without file names, sample names, quotes and numbers: "pics/a.png: cut off after 1,203 bytes" is
// "cut off after N bytes".
std::string skip_kind(const std::string& reason);
// The most frequent first.
std::vector<ReportSkip> skips_by_kind(const std::vector<SkipRecord>& skips);

}  // namespace loom
