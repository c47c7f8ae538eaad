#pragma once
// The samples of a report: one card each, with its picture once, the newest output large and earlier ones folded away.
#include <string>

#include "core/base/tensor.h"
#include "pipelines/report.h"

namespace loom {

// A picture's file for a report that shows `count` of them: together they stay near 1.5 MB.
std::string report_picture(const Tensor& picture, size_t count);
// The list and what stands beside its title; empty without samples.
struct SampleSection {
  std::string aside, body;
};
SampleSection samples_html(const ReportData& data);

}  // namespace loom
