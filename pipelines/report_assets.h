#pragma once
// The report's style sheet and script, kept apart from the code that writes the page.
namespace loom {

extern const char* const kReportStyle;
extern const char* const kReportScript;

}  // namespace loom
