// Strings put together from top to bottom; the look is in report_assets.
#include "pipelines/report_page.h"

#include <algorithm>
#include <cctype>

#include "core/base/text.h"
#include "core/base/version.h"
#include "pipelines/report_assets.h"
#include "pipelines/report_curves.h"
#include "pipelines/report_metrics.h"
#include "pipelines/report_ranks.h"
#include "pipelines/report_samples.h"
#include "pipelines/report_timing.h"

namespace loom {
namespace {

std::string section(const std::string& title, const std::string& aside, const std::string& body) {
  if (body.empty()) return "";
  return "<section><header><h2>" + title + "</h2>" + aside + "</header>\n" + body + "</section>\n";
}

std::string state_line(const ReportData& data) {
  std::string words = data.state;
  if (!words.empty()) words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  if (data.steps > 0) {
    const std::string at = with_commas(data.step);
    words += data.step < data.steps ? " · step " + at + " of " + with_commas(data.steps) : " · " + at + " steps";
  }
  std::string out = "<p class=\"state " + html_escape(data.state) + "\"><i></i><span>" + html_escape(words) + "</span>";
  if (!data.updated.empty()) out += "<time>" + html_escape(data.updated) + "</time>";
  return out + "</p>\n";
}

std::string headline(const ReportData& data) {
  std::string out = state_line(data) + "<h1>" + html_escape(data.title) + "</h1>\n";
  if (!data.subtitle.empty()) out += "<p class=\"lead\">" + html_escape(data.subtitle) + "</p>\n";
  if (!data.note.empty()) out += "<p class=\"note\">" + html_escape(data.note) + "</p>\n";
  if (data.steps > 0 && data.step < data.steps) {
    out += "<div class=\"track\"><i style=\"width:" + std::to_string(100 * data.step / data.steps) + "%\"></i></div>\n";
  }
  if (data.numbers.empty()) return out;
  out += "<dl class=\"numbers\">";
  for (size_t i = 0; i < data.numbers.size(); ++i) {
    const ReportNumber& number = data.numbers[i];
    out += std::string("<div") + (i == 0 ? " class=\"main\"" : "") + "><dt>" + html_escape(number.label) + "</dt><dd>" +
           html_escape(number.value);
    if (!number.note.empty()) out += "<small>" + html_escape(number.note) + "</small>";
    out += "</dd></div>";
  }
  return out + "</dl>\n";
}

std::string curves(const ReportData& data) {
  if (data.metrics_file.empty()) return "";
  std::string out;
  for (const Chart& chart : training_charts(metric_curves(data.metrics_file))) out += chart_html(chart);
  return out.empty() ? "" : "<div class=\"charts\">\n" + out + "</div>\n";
}

// One row per component; on a narrow screen each becomes a block of its own, so every cell carries its column's name.
std::string plan_table(const std::vector<ReportPlanRow>& rows) {
  struct Column {
    const char* title;
    bool number;
    std::string (*text)(const ReportPlanRow&);
  };
  static constexpr auto bytes = [](int64_t value) {
    return value < 0 ? "" : value == 0 ? "0" : human_bytes(static_cast<double>(value));
  };
  static const Column columns[] = {
      {"parameters", true,
       [](const ReportPlanRow& row) { return row.params > 0 ? human_count(static_cast<double>(row.params)) : ""; }},
      {"layout", false, [](const ReportPlanRow& row) { return row.layout; }},
      {"weights", true, [](const ReportPlanRow& row) { return std::string(bytes(row.weights)); }},
      {"gradients", true, [](const ReportPlanRow& row) { return std::string(bytes(row.gradients)); }},
      {"optimizer", true, [](const ReportPlanRow& row) { return std::string(bytes(row.optimizer)); }},
      {"activations", true, [](const ReportPlanRow& row) { return std::string(bytes(row.activations)); }}};
  std::vector<const Column*> shown;
  for (const Column& column : columns) {
    const bool any = std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return !column.text(row).empty(); });
    if (any) shown.push_back(&column);
  }
  if (rows.empty()) return "";
  std::string out = "<table class=\"plan\"><thead><tr><th>component</th>";
  for (const Column* column : shown)
    out += std::string("<th") + (column->number ? " class=\"n\"" : "") + ">" + column->title + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const ReportPlanRow& row : rows) {
    out += "<tr><th>" + html_escape(row.component) + "</th>";
    for (const Column* column : shown) {
      const std::string text = column->text(row);
      out += std::string("<td data-name=\"") + column->title + "\"" + (column->number ? " class=\"n\"" : "") + ">" +
             html_escape(text.empty() ? "–" : text) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string facts(const ReportData& data) {
  std::string out;
  for (const ReportFact& fact : data.facts)
    out += "<div><dt>" + html_escape(fact.key) + "</dt><dd>" + html_escape(fact.value) + "</dd></div>\n";
  return out.empty() ? "" : "<dl class=\"facts\">\n" + out + "</dl>\n";
}

std::string skipped(const ReportData& data) {
  std::string out;
  for (const ReportSkip& skip : data.skipped) {
    out += "<tr><td class=\"n\">" + with_commas(skip.count) + "</td><td>" + html_escape(skip.kind);
    if (!skip.example.empty()) out += "<small>" + html_escape(skip.example) + "</small>";
    out += "</td></tr>\n";
  }
  return out.empty() ? "" : "<table class=\"skips\">\n" + out + "</table>\n";
}

// Where a comment starts that follows a value: a '#' after a space, outside quotes.
size_t trailing_comment(const std::string& line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ')) {
      return i;
    }
  }
  return line.size();
}

std::string tagged(const char* css, const std::string& text) {
  return text.empty() ? "" : std::string("<span class=\"") + css + "\">" + html_escape(text) + "</span>";
}

// YAML with keys and comments set apart.
std::string recipe(const std::string& yaml) {
  std::string out;
  for (const std::string& line : split(yaml, '\n')) {
    const size_t comment = trailing_comment(line);
    const std::string code = line.substr(0, comment);
    const size_t start = std::min(code.find_first_not_of(" -"), code.size());
    const size_t colon = std::min(code.find(':', start), code.size());
    const bool has_key = colon < code.size() && (colon + 1 == code.size() || code[colon + 1] == ' ') &&
                         code.find_first_of("\"'{[", start) > colon;
    const size_t key_end = has_key ? colon : start;
    out += html_escape(code.substr(0, start)) + tagged("k", code.substr(start, key_end - start)) +
           html_escape(code.substr(key_end)) + tagged("c", line.substr(comment)) + "\n";
  }
  while (out.ends_with('\n')) out.pop_back();
  return out.empty() ? "" : "<pre>" + out + "</pre>\n";
}

}  // namespace

std::string html_escape(std::string_view text) {
  const bool utf8 = valid_utf8(text);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if ((byte >= 0x80 && !utf8) || (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
      out += "\xef\xbf\xbd";
    else
      out += c;
  }
  return out;
}

std::string report_html(const ReportData& data) {
  const SampleSection samples = samples_html(data);
  const TimingSection timing = timing_html(data.metrics_file, data.timing_file, data.peak);
  const RanksSection ranks = ranks_html(data.metrics_file, data.ranks_file, data.timeline_file);
  int64_t skips = 0;
  for (const ReportSkip& skip : data.skipped) skips += skip.count;
  return "<!doctype html>\n<html lang=\"en\" data-state=\"" + html_escape(data.state) +
         "\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\">\n<title>" +
         html_escape(data.title) + " - Omniloom</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>" + kReportStyle +
         "</style>\n</head>\n<body>\n<main>\n" + headline(data) +
         section("Curves", "<p>by step; shaded from the lowest to the highest step nearby</p>", curves(data)) +
         section("Where the time goes", timing.aside, timing.body) + section(ranks.title, ranks.aside, ranks.body) +
         section("Samples", samples.aside, samples.body) +
         section(data.plan.empty() ? "Run" : "What ran where", "", plan_table(data.plan) + facts(data)) +
         section("Skipped samples", "<p>" + with_commas(skips) + " by kind</p>", skipped(data)) +
         section("Recipe", "<p>as resolved</p>", recipe(data.recipe)) + "</main>\n<footer>Omniloom " +
         std::string(kVersion) + "</footer>\n<script>" + kReportScript + "</script>\n</body>\n</html>\n";
}

}  // namespace loom
