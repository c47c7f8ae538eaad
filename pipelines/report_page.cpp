// Strings put together from top to bottom; the look is in report_assets.
#include "pipelines/report_page.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/base/version.h"
#include "pipelines/png.h"
#include "pipelines/report_assets.h"
#include "pipelines/report_chart.h"

namespace loom {
namespace {

constexpr size_t kMostSamples = 240;
constexpr int64_t kSmallPicture = 160;  // pixels; below it, enlarged pixels stay square

std::string section(const std::string& title, const std::string& aside, const std::string& body) {
  if (body.empty()) return "";
  return "<section><header><h2>" + title + "</h2>" + aside + "</header>\n" + body + "</section>\n";
}

std::string headline(const ReportData& data) {
  std::string out =
      "<div class=\"state " + html_escape(data.state) + "\"><i></i>Omniloom run, " + html_escape(data.state);
  if (data.steps > 0 && data.step < data.steps)
    out += " at step " + with_commas(data.step) + " of " + with_commas(data.steps);
  out += "</div>\n<h1>" + html_escape(data.title) + "</h1>\n";
  if (!data.subtitle.empty()) out += "<p class=\"lead\">" + html_escape(data.subtitle) + "</p>\n";
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

// The output with the words marked that differ from the truth: what lies between the common beginning and the common
// end.
std::string marked(const std::string& output, const std::string& truth) {
  const std::vector<std::string> said = split(output, ' '), meant = split(truth, ' ');
  const size_t shorter = std::min(said.size(), meant.size());
  size_t begin = 0, end = 0;
  while (begin < shorter && said[begin] == meant[begin]) ++begin;
  while (end < shorter - begin && said[said.size() - 1 - end] == meant[meant.size() - 1 - end]) ++end;
  const auto words = [&](size_t from, size_t to) {
    return join({said.begin() + static_cast<long>(from), said.begin() + static_cast<long>(to)}, " ");
  };
  std::string out = html_escape(words(0, begin));
  if (begin < said.size() - end) {
    out += (begin > 0 ? " " : "") + ("<mark>" + html_escape(words(begin, said.size() - end))) + "</mark>";
  }
  if (end > 0) out += (out.empty() ? "" : " ") + html_escape(words(said.size() - end, said.size()));
  return out;
}

std::string sample_html(const ReportSample& sample) {
  std::string out = sample.correct ? "<li class=\"right\">" : "<li class=\"wrong\">";
  if (sample.picture.defined()) {
    const bool small = std::max(sample.picture.size(0), sample.picture.size(1)) <= kSmallPicture;
    out += "<img alt=\"" + html_escape(sample.truth) + "\"" + (small ? " class=\"small\"" : "") + " src=\"" +
           png_data_uri(sample.picture) + "\">";
  }
  const std::string said = trim(sample.output).empty() ? "<span class=\"tag\">(nothing)</span>" : "";
  if (sample.correct) {
    out += "<p>" + html_escape(sample.output) + "</p><p class=\"truth\"><span class=\"tag\">exact</span></p>";
  } else {
    out += "<p>" + (said.empty() ? marked(sample.output, sample.truth) : said) +
           "</p><p class=\"truth\"><span class=\"tag\">wrong, truth:</span> " + html_escape(sample.truth) + "</p>";
  }
  return out + "</li>\n";
}

std::string samples(const ReportData& data) {
  if (data.samples.empty()) return "";
  const size_t shown = std::min(data.samples.size(), kMostSamples);
  std::string list;
  size_t wrong = 0;
  for (size_t i = 0; i < shown; ++i) {
    list += sample_html(data.samples[i]);
    wrong += data.samples[i].correct ? 0 : 1;
  }
  std::string aside = "<p>" + html_escape(data.samples_note) + "</p>";
  if (wrong > 0 && wrong < shown) {
    aside += "<div class=\"filter\"><input type=\"radio\" name=\"show\" id=\"all\" checked><label for=\"all\">All " +
             std::to_string(shown) +
             "</label><input type=\"radio\" name=\"show\" id=\"only-wrong\"><label for=\"only-wrong\">Wrong " +
             std::to_string(wrong) + "</label></div>";
  }
  return section("Samples", aside, "<ul class=\"samples\">\n" + list + "</ul>\n");
}

std::string facts(const ReportData& data) {
  std::string out;
  for (const ReportFact& fact : data.facts)
    out += "<dt>" + html_escape(fact.key) + "</dt><dd>" + html_escape(fact.value) + "</dd>\n";
  return out.empty() ? "" : "<dl class=\"facts\">\n" + out + "</dl>\n";
}

std::string skipped(const ReportData& data) {
  std::string out;
  for (const ReportSkip& skip : data.skipped) {
    out += "<tr><td class=\"n\">" + with_commas(skip.count) + "</td><td>" + html_escape(skip.reason) + "</td></tr>\n";
  }
  return out.empty() ? "" : "<table>\n" + out + "</table>\n";
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
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\">\n"
         "<title>" +
         html_escape(data.title) + " - Omniloom</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>" + kReportStyle +
         "</style>\n</head>\n<body>\n<main>\n" + headline(data) + section("Curves", "", curves(data)) + samples(data) +
         section("Run", "", facts(data)) + section("Skipped samples", "<p>by reason</p>", skipped(data)) +
         section("Recipe", "<p>as resolved</p>", recipe(data.recipe)) + "</main>\n<footer>Omniloom " +
         std::string(kVersion) + "</footer>\n<script>" + kReportScript + "</script>\n</body>\n</html>\n";
}

}  // namespace loom
