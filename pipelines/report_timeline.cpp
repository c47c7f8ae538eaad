// The SVG is stretched to its box, so texts are HTML beside it.
#include "pipelines/report_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/base/text.h"
#include "pipelines/report_axis.h"
#include "pipelines/report_page.h"

namespace loom {
namespace {

constexpr size_t kMostRows = 32, kMostCommunication = 160;  // bars of a row
constexpr double kUnits = 1000;                             // of the view box, across
constexpr int kRow = 24, kBar = 18;                         // pixels
constexpr size_t kColors = 6;
constexpr const char* kCommunication = "communication";

std::string text(const char* pattern, double value) {
  std::array<char, 48> out{};
  std::snprintf(out.data(), out.size(), pattern, value);
  return out.data();
}

bool drawable(const StepBar& bar) {
  return std::isfinite(bar.begin) && std::isfinite(bar.end) && bar.begin >= 0 && bar.end > bar.begin;
}

struct Row {
  size_t rank = 0;
  double computes = 0, communicates = 0;  // seconds
  std::vector<StepBar> bars;              // communication last
};

Row row_of(size_t rank, const std::vector<StepBar>& bars) {
  Row row;
  row.rank = rank;
  std::vector<StepBar> over;
  double phases = 0;
  for (const StepBar& bar : bars) {
    if (!drawable(bar)) continue;
    (bar.communication ? row.communicates : phases) += bar.end - bar.begin;
    (bar.communication ? over : row.bars).push_back(bar);
  }
  row.computes = std::max(0.0, phases - row.communicates);
  if (over.size() > kMostCommunication) {
    std::nth_element(over.begin(), over.begin() + kMostCommunication, over.end(),
                     [](const StepBar& a, const StepBar& b) { return a.end - a.begin > b.end - b.begin; });
    over.resize(kMostCommunication);
  }
  row.bars.insert(row.bars.end(), over.begin(), over.end());
  return row;
}

// All, or those at both ends of what they compute, in the order of ranks.
std::vector<Row> shown_rows(const RankTimeline& timeline) {
  std::vector<Row> rows;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) rows.push_back(row_of(rank, timeline.ranks[rank]));
  if (rows.size() <= kMostRows) return rows;
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.computes > b.computes; });
  rows.erase(rows.begin() + kMostRows / 2, rows.end() - kMostRows / 2);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.rank < b.rank; });
  return rows;
}

std::string words_of(const StepBar& bar) {
  const std::string part = phase_part(bar.action, bar.component);
  const std::string what = bar.component.empty() ? part == "data" ? part : part + ", " + step_action_name(bar.action)
                                                 : part + " " + step_action_name(bar.action);
  return what + (bar.communication ? ": communication or waiting" : "");
}

std::string rect(const std::string& css, double x, double y, double width, double height, const std::string& title) {
  return "<rect class=\"" + css + "\" x=\"" + text("%.2f", x) + "\" y=\"" + text("%.0f", y) + "\" width=\"" +
         text("%.2f", width) + "\" height=\"" + text("%.0f", height) + "\">" +
         (title.empty() ? "" : "<title>" + html_escape(title) + "</title>") + "</rect>";
}

std::string bar_svg(const StepBar& bar, size_t rank, double y, const Axis& axis, double scale,
                    const PartColors& colors) {
  std::string css = colors.of(bar.communication ? kCommunication : phase_part(bar.action, bar.component));
  if (bar.action == StepAction::forward && !bar.communication) css += " f";
  const double begin = axis.share(bar.begin * scale), end = axis.share(bar.end * scale);
  const std::string title =
      "rank " + std::to_string(rank) + " · " + words_of(bar) + " · " + time_text(bar.end - bar.begin);
  return rect(css, kUnits * begin, y, std::max(0.3, kUnits * (end - begin)), kBar, title);
}

std::string key(const std::string& css, const std::string& words) {
  return "<span class=\"key " + css + "\"><i></i>" + html_escape(words) + "</span>";
}

std::string legend_of(const std::vector<Row>& rows, const PartColors& colors) {
  std::string out;
  for (const std::string& component : colors.components()) out += key(colors.of(component), component);
  const auto any = [&](const auto& is) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const Row& row) { return std::any_of(row.bars.begin(), row.bars.end(), is); });
  };
  for (const char* part : {"optimizer", "data"}) {
    if (any([&](const StepBar& bar) { return phase_part(bar.action, bar.component) == part; }))
      out += key(colors.of(part), part);
  }
  if (any([](const StepBar& bar) { return bar.communication; }))
    out += key(colors.of(kCommunication), "communication and waiting");
  return out;
}

}  // namespace

PartColors::PartColors(std::vector<std::string> components) : components_(std::move(components)) {
  const auto order = [](const std::string& name) {
    const std::string modality = name.substr(std::min(name.find('.'), name.size()));
    return std::make_tuple(name != "backbone", modality, !name.starts_with("encoders."), name);
  };
  std::sort(components_.begin(), components_.end(),
            [&](const std::string& a, const std::string& b) { return order(a) < order(b); });
}

std::string PartColors::of(const std::string& part) const {
  if (part == "optimizer") return "t5";
  if (part == "data") return "t6";
  const auto found = std::find(components_.begin(), components_.end(), part);
  if (found == components_.end()) return "t7";
  const auto place = static_cast<size_t>(found - components_.begin());
  return "k" + std::to_string(1 + (place < kColors ? place : 1 + (place - 1) % (kColors - 1)));
}

std::vector<std::string> components_of(const RankTimeline& timeline) {
  std::vector<std::string> out;
  for (const std::vector<StepBar>& bars : timeline.ranks) {
    for (const StepBar& bar : bars) {
      if (!bar.component.empty() && std::find(out.begin(), out.end(), bar.component) == out.end())
        out.push_back(bar.component);
    }
  }
  return out;
}

std::string timeline_html(const ReadTimeline& read) {
  const std::vector<Row> rows = shown_rows(read.timeline);
  double end = 0;
  for (const Row& row : rows) {
    for (const StepBar& bar : row.bars) end = std::max(end, bar.end);
  }
  if (end <= 0) return "";
  const bool in_seconds = end >= 10;
  const double scale = in_seconds ? 1 : 1e3;
  Axis axis = linear_axis(0, end * scale, 6);
  axis.high = end * scale;
  std::erase_if(axis.ticks, [&](double tick) { return tick > axis.high; });

  const PartColors colors(components_of(read.timeline));
  const int height = kRow * static_cast<int>(rows.size());
  std::string svg, labels, ticks, spoken;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double y = kRow * static_cast<double>(i) + (kRow - kBar) / 2.0;
    svg += rect("row", 0, y, kUnits, kBar, "");
    for (const StepBar& bar : row.bars) svg += bar_svg(bar, row.rank, y, axis, scale, colors);
    const std::string name = "rank " + std::to_string(row.rank);
    labels +=
        "<span style=\"top:" + text("%.2f", 100 * (static_cast<double>(i) + 0.5) / static_cast<double>(rows.size())) +
        "%\">" + name + "</span>";
    spoken +=
        "; " + name + " computes " + time_text(row.computes) + ", communicates or waits " + time_text(row.communicates);
  }
  const std::vector<std::string> tick_words = tick_texts(axis, NumberStyle::plain);
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double at = axis.share(axis.ticks[i]);
    ticks += std::string("<span") + (at > 0.97 ? " class=\"end\"" : "") + " style=\"left:" + text("%.2f", 100 * at) +
             "%\">" + tick_words[i] + "</span>";
  }
  std::string note = std::string(in_seconds ? "seconds" : "milliseconds") + "; forward paler than backward";
  if (rows.size() < read.timeline.ranks.size())
    note += "; of " + std::to_string(read.timeline.ranks.size()) + " ranks those that compute most and least";
  const std::string title = "Step " + with_commas(read.step);
  return "<figure class=\"lanes\"><figcaption><span class=\"name\">" + title + " <em>" + note +
         "</em></span><span class=\"legend\">" + legend_of(rows, colors) +
         "</span></figcaption><div class=\"plot\"><div class=\"y\">" + labels +
         "</div><div class=\"area\" role=\"img\" aria-label=\"" + title + spoken +
         "\"><svg style=\"height:" + std::to_string(height) + "px\" viewBox=\"0 0 1000 " + std::to_string(height) +
         "\" preserveAspectRatio=\"none\">" + svg + "</svg></div><div class=\"x\">" + ticks + "</div></div></figure>\n";
}

}  // namespace loom
