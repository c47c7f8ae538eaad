// Sizes are bounded here: of texts, of pictures, of the list.
#include "pipelines/report_samples.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "pipelines/png.h"
#include "pipelines/report_page.h"

namespace loom {
namespace {

constexpr size_t kMostSamples = 240, kMostEarlier = 8;
constexpr size_t kMostPictureBytes = 1'800'000;  // of all, as text in the page
constexpr int64_t kLargestPicture = 320;
constexpr int64_t kSmallPicture = 64;  // pixels; up to it, enlarged pixels stay square
constexpr size_t kLongestText = 1200;  // characters
constexpr size_t kLongText = 90;       // above it on average, cards become rows

std::string shortened(const std::string& text) {
  return utf8_columns(text) > kLongestText ? utf8_cut(text, kLongestText) + " …" : text;
}

// The longer side, which a PNG file says at a fixed place.
int64_t side_of(const std::string& png) {
  const auto number = [&](size_t at) {
    int64_t out = 0;
    for (size_t i = at; i < at + 4 && i < png.size(); ++i) out = out << 8 | static_cast<unsigned char>(png[i]);
    return out;
  };
  return std::max(number(16), number(20));
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

std::string output_html(const ReportOutput& output, const std::string& truth) {
  if (trim(output.text).empty()) return "<span class=\"tag\">(nothing)</span>";
  const std::string text = shortened(output.text);
  return output.correct ? html_escape(text) : marked(text, shortened(truth));
}

// Outputs of earlier evaluations, newest first; equal neighbours are one line, with the step it began at.
std::string earlier_html(const ReportSample& sample) {
  std::string lines;
  size_t shown = 0;
  for (size_t i = 1; i < sample.outputs.size() && shown < kMostEarlier; ++i) {
    const bool same_as_next = i + 1 < sample.outputs.size() && sample.outputs[i + 1].text == sample.outputs[i].text;
    if (same_as_next || sample.outputs[i].text == sample.outputs[0].text) continue;
    ++shown;
    lines += "<li><span class=\"tag\">step " + with_commas(sample.outputs[i].step) + "</span> " +
             output_html(sample.outputs[i], sample.truth) + "</li>";
  }
  if (lines.empty()) return "";
  return "<details><summary>" + std::to_string(shown) + " earlier</summary><ul>" + lines + "</ul></details>";
}

std::string card(const ReportSample& sample, size_t& picture_bytes) {
  const ReportOutput newest = sample.outputs.empty() ? ReportOutput{} : sample.outputs.front();
  std::string out = newest.correct ? "<li class=\"right\">" : "<li class=\"wrong\">";
  const size_t size = (sample.png.size() + 2) / 3 * 4;
  if (!sample.png.empty() && picture_bytes + size <= kMostPictureBytes) {
    picture_bytes += size;
    const bool small = side_of(sample.png) <= kSmallPicture;
    out += "<img loading=\"lazy\" alt=\"" + html_escape(sample.name.empty() ? sample.truth : sample.name) + "\"" +
           (small ? " class=\"small\"" : "") + " src=\"" + png_data_uri(sample.png) + "\">";
  } else if (!sample.png.empty()) {
    out += "<div class=\"none\">picture left out</div>";
  }
  out += "<div>";
  if (!trim(sample.prompt).empty())
    out += "<p class=\"prompt\">" + html_escape(shortened(std::string(trim(sample.prompt)))) + "</p>";
  out += "<p class=\"said\">" + output_html(newest, sample.truth) + "</p>";
  if (newest.correct) {
    out += "<p class=\"truth\"><span class=\"tag\">exact</span></p>";
  } else {
    out += "<p class=\"truth\"><span class=\"tag\">truth</span> " + html_escape(shortened(sample.truth)) + "</p>";
  }
  return out + earlier_html(sample) + "</div></li>\n";
}

bool long_texts(const ReportData& data, size_t shown) {
  size_t characters = 0, pictures = 0;
  for (size_t i = 0; i < shown; ++i) {
    const ReportSample& sample = data.samples[i];
    characters += utf8_columns(sample.prompt) + utf8_columns(sample.truth);
    if (!sample.outputs.empty()) characters += utf8_columns(sample.outputs[0].text);
    pictures += sample.png.empty() ? 0 : 1;
  }
  return characters > kLongText * shown || pictures == 0;
}

}  // namespace

std::string report_picture(const Tensor& picture, size_t count) {
  const size_t allowance = kMostPictureBytes * 3 / 4 / std::clamp<size_t>(count, 12, kMostSamples);
  return encode_png_within(picture, kLargestPicture, allowance);
}

SampleSection samples_html(const ReportData& data) {
  if (data.samples.empty()) return {};
  const size_t shown = std::min(data.samples.size(), kMostSamples);
  std::string list;
  size_t wrong = 0, picture_bytes = 0;
  for (size_t i = 0; i < shown; ++i) {
    list += card(data.samples[i], picture_bytes);
    wrong += !data.samples[i].outputs.empty() && data.samples[i].outputs[0].correct ? 0 : 1;
  }
  SampleSection section;
  if (!data.samples_note.empty()) section.aside = "<p>" + html_escape(data.samples_note) + "</p>";
  if (wrong > 0 && wrong < shown) {
    section.aside +=
        "<div class=\"filter\"><input type=\"radio\" name=\"show\" id=\"all\" checked><label for=\"all\">All " +
        std::to_string(shown) +
        "</label><input type=\"radio\" name=\"show\" id=\"only-wrong\"><label for=\"only-wrong\">Wrong " +
        std::to_string(wrong) + "</label></div>";
  }
  section.body =
      std::string("<ul class=\"samples") + (long_texts(data, shown) ? " rows" : "") + "\">\n" + list + "</ul>\n";
  return section;
}

}  // namespace loom
