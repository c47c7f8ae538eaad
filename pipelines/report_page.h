#pragma once
// The page itself, section by section: headline, curves, time, samples, what ran where, skipped samples, recipe.
#include <string>
#include <string_view>

#include "pipelines/report.h"

namespace loom {

std::string report_html(const ReportData& data);
// Text as HTML content or attribute value; control characters, and bytes of text that is not UTF-8, are replaced.
std::string html_escape(std::string_view text);

}  // namespace loom
