#include "pipelines/report_ranks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "core/base/text.h"
#include "core/observe/progress.h"
#include "pipelines/report_axis.h"
#include "pipelines/report_chart.h"
#include "pipelines/report_metrics.h"
#include "pipelines/report_page.h"
#include "pipelines/report_timeline.h"

namespace loom {
namespace {

constexpr size_t kLastLines = 20, kWaitsTold = 3;
constexpr double kWorthTelling = 0.005;  // of a step
constexpr size_t kMostLabels = 16;       // ranks under a strip

std::string text(const char* pattern, double value) {
  std::array<char, 48> out{};
  std::snprintf(out.data(), out.size(), pattern, value);
  return out.data();
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double most_of(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}
double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : sum_of(values) / static_cast<double>(values.size());
}
size_t rank_of_most(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

// "rank 0 waits 12.3 ms of a step for rank 3's encoders.image"
std::string wait_words(const RankWait& wait) {
  std::string whom = rank_name(wait.behind);
  if (wait.part == kBetweenPart) {
    whom += ", which is late to the step";
  } else if (wait.part == kOtherPart) {
    whom += ", which computes no more";
  } else {
    whom += "'s " + wait.part;
  }
  return "<b>" + rank_name(wait.rank) + "</b> waits <b>" + time_text(wait.seconds) + "</b> of a step for <b>" +
         html_escape(whom) + "</b>";
}

std::string waits_html(const MeanRanks& ranks) {
  std::string out;
  for (size_t i = 0; i < std::min(ranks.waits.size(), kWaitsTold); ++i) {
    if (ranks.waits[i].seconds < kWorthTelling * mean_of(ranks.seconds)) break;
    out += "<li>" + wait_words(ranks.waits[i]) + "</li>\n";
  }
  return out.empty() ? "" : "<ul class=\"waits\">\n" + out + "</ul>\n";
}

// A bar per rank, as high as what it computes; a mark where its share of the predicted cost would end.
std::string strip_html(const ComponentRanks& of, const std::string& css) {
  const double total = sum_of(of.compute), cost = sum_of(of.predicted);
  if (total <= 0) return "";
  const auto predicted = [&](size_t rank) { return cost > 0 ? of.predicted[rank] / cost * total : 0; };
  double high = most_of(of.compute);
  for (size_t rank = 0; rank < of.compute.size(); ++rank) high = std::max(high, predicted(rank));
  const size_t count = of.compute.size();
  const double width = 1000.0 / static_cast<double>(count);
  std::string bars, labels, spoken;
  for (size_t rank = 0; rank < count; ++rank) {
    const double left = width * static_cast<double>(rank), up = 96 * of.compute[rank] / high;
    const std::string words = rank_name(static_cast<int>(rank)) + ": computes " + time_text(of.compute[rank]) + ", " +
                              percent_text(of.compute[rank] / total) + " of all";
    std::string more;
    if (cost > 0) more += "; predicted " + percent_text(of.predicted[rank] / cost);
    more += "; waits " + time_text(of.waiting[rank]) + "; " + text("%.4g", of.items[rank]) +
            (of.component == "backbone" ? " samples" : " items") + " of " + text("%.5g", of.tokens[rank]) + " rows";
    bars += "<rect class=\"" + css + "\" x=\"" + text("%.2f", left + 0.06 * width) + "\" y=\"" +
            text("%.2f", 100 - up) + "\" width=\"" + text("%.2f", 0.88 * width) + "\" height=\"" + text("%.2f", up) +
            "\"><title>" + html_escape(words + more) + "</title></rect>";
    if (cost > 0)
      bars += "<path class=\"mark\" d=\"M" + text("%.2f", left + 0.02 * width) + " " +
              text("%.2f", 100 - 96 * predicted(rank) / high) + "h" + text("%.2f", 0.96 * width) + "\"/>";
    spoken += "; " + words;
    if (count <= kMostLabels)
      labels +=
          "<span style=\"left:" + text("%.2f", 100 * (static_cast<double>(rank) + 0.5) / static_cast<double>(count)) +
          "%\">" + std::to_string(rank) + "</span>";
  }
  return "<figure class=\"lanes strip\"><figcaption><span class=\"name\">" + html_escape(of.component) +
         "</span><span class=\"legend\"><span class=\"key\">most over mean <b>" +
         text("%.3f", most_of(of.compute) / mean_of(of.compute)) +
         "</b></span></span></figcaption><div "
         "class=\"plot\"><div class=\"area\" role=\"img\" aria-label=\"" +
         html_escape(of.component + spoken) +
         "\"><svg style=\"height:84px\" viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\">" + bars +
         "</svg></div><div class=\"x\">" + labels + "</div></div></figure>\n";
}

struct Cell {
  const char* title;
  std::string text;
};

std::vector<Cell> cells_of(const ComponentRanks& of, const WireCheck& wire) {
  const auto bytes = [&](const WireForecast& all) {
    const auto found = all.find(of.component), asked = wire.predicted.find(of.component);
    double sum = 0;
    for (size_t rank = 0; found != all.end() && rank < found->second.size(); ++rank)
      sum += asked->second[rank] >= 0 ? static_cast<double>(found->second[rank]) : 0;
    return found != all.end() ? human_bytes(sum) : std::string("–");
  };
  const double mean = mean_of(of.compute), predicted = mean_of(of.predicted);
  std::vector<Cell> out = {{"computes", time_text(mean)},
                           {"at most", time_text(most_of(of.compute))},
                           {"by", mean > 0 ? rank_name(static_cast<int>(rank_of_most(of.compute))) : "–"},
                           {"most/mean", mean > 0 ? text("%.3f", most_of(of.compute) / mean) : "–"},
                           {"predicted", predicted > 0 ? text("%.3f", most_of(of.predicted) / predicted) : "–"},
                           {"communicates", time_text(mean_of(of.communication))},
                           {"of it waits", time_text(mean_of(of.waiting))},
                           {"sends", human_bytes(mean_of(of.sent))}};
  if (wire.step > 0) {
    out.push_back({"bytes predicted", bytes(wire.predicted)});
    out.push_back({"measured", bytes(wire.sent)});
  }
  return out;
}

std::string table_html(const std::vector<ComponentRanks>& components, const WireCheck& wire) {
  std::string head, rows;
  for (const ComponentRanks& component : components) {
    const std::vector<Cell> cells = cells_of(component, wire);
    const bool first = head.empty();
    rows += "<tr><th>" + html_escape(component.component) + "</th>";
    for (const Cell& cell : cells) {
      if (first) head += std::string("<th class=\"n\">") + cell.title + "</th>";
      rows += std::string("<td data-name=\"") + cell.title + "\" class=\"n\">" + html_escape(cell.text) + "</td>";
    }
    rows += "</tr>\n";
  }
  return "<table class=\"times\"><thead><tr><th>component</th>" + head + "</tr></thead><tbody>\n" + rows +
         "</tbody></table>\n";
}

// Over steps: measured beside predicted, and what ranks wait.
std::string curves(const std::map<std::string, Points>& metrics, const std::vector<ComponentRanks>& components) {
  const auto of = [&](const std::string& name) {
    const auto found = metrics.find(name);
    return found != metrics.end() ? found->second : Points{};
  };
  std::string out = chart_html(Chart{"Share of a step that ranks wait",
                                     NumberStyle::percent,
                                     true,
                                     false,
                                     false,
                                     {{"waiting", "a", of("wait_share")}}});
  for (const ComponentRanks& component : components) {
    if (component.component.starts_with("connectors.")) continue;
    out += chart_html(Chart{"Most over mean: " + component.component,
                            NumberStyle::plain,
                            false,
                            false,
                            false,
                            {{"measured", "a", of("imbalance_measured/" + component.component)},
                             {"predicted", "b", of("imbalance/" + component.component)}}});
  }
  return "<div class=\"charts\">\n" + out + "</div>\n";
}

// Of a run that had several ranks and goes on with one, the file is of the past.
bool of_now(const std::map<std::string, Points>& metrics) {
  const auto share = metrics.find("wait_share"), seconds = metrics.find("seconds");
  return share != metrics.end() && seconds != metrics.end() &&
         share->second.back().first == seconds->second.back().first;
}

}  // namespace

RanksSection ranks_html(const std::string& metrics_file, const std::string& ranks_file,
                        const std::string& timeline_file) {
  RanksSection out;
  const std::optional<ReadTimeline> timeline = read_timeline(timeline_file);
  const std::string picture = timeline.has_value() ? timeline_html(*timeline) : "";
  const std::map<std::string, Points> metrics = metric_curves(metrics_file);
  MeanRanks ranks = of_now(metrics) ? mean_ranks(ranks_file, kLastLines) : MeanRanks{};
  out.title = ranks.lines == 0 ? "One step" : "Ranks";
  out.body = picture;
  if (ranks.lines == 0) return out;

  std::vector<std::string> names;
  for (const ComponentRanks& component : ranks.components) names.push_back(component.component);
  const PartColors colors(names);
  std::sort(ranks.components.begin(), ranks.components.end(), [&](const ComponentRanks& a, const ComponentRanks& b) {
    const auto place = [&](const ComponentRanks& of) {
      return std::find(colors.components().begin(), colors.components().end(), of.component);
    };
    return place(a) < place(b);
  });
  std::string strips;
  for (const ComponentRanks& component : ranks.components)
    strips += strip_html(component, colors.of(component.component));
  const WireCheck wire = wire_check(ranks_file);
  const double waiting = metrics.at("wait_share").back().second;
  out.aside = "<p>ranks wait " + percent_text(waiting) + " of the last step; means of " + std::to_string(ranks.lines) +
              (ranks.lines == 1 ? " step" : " steps") +
              "; waits are estimates; bars: what each rank computes, marks: its share of the predicted cost" +
              (wire.step > 0 ? "; bytes predicted and measured are of step " + with_commas(wire.step) : "") + "</p>";
  out.body = waits_html(ranks) + picture + (strips.empty() ? "" : "<div class=\"charts\">\n" + strips + "</div>\n") +
             table_html(ranks.components, wire) + curves(metrics, ranks.components);
  return out;
}

}  // namespace loom
