#pragma once
// Which curves a training run has, from the names of its metrics.
#include <map>
#include <string>
#include <vector>

#include "pipelines/report_chart.h"

namespace loom {

// Most important first; those without data have no points.
std::vector<Chart> training_charts(const std::map<std::string, Points>& metrics);

}  // namespace loom
