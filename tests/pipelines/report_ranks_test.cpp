// The section on ranks shows what the files hold: bars where they lie, waits in words, and nothing that is no number.
#include "pipelines/report_ranks.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/file.h"
#include "core/observe/metrics.h"
#include "pipelines/rank_log.h"
#include "pipelines/report_page.h"
#include "pipelines/report_timeline.h"
#include "tests/core/base/temp_folder.h"
#include "tests/pipelines/ranks.h"

namespace loom::test {
namespace {

size_t count_of(const std::string& text, const std::string& needle) {
  size_t count = 0;
  for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1)) ++count;
  return count;
}

void expect_numbers(const std::string& html) {
  for (const char* wrong : {"nan", "inf\"", "inf ", "NaN", "\"-"})
    EXPECT_EQ(html.find(wrong), std::string::npos) << wrong;
}

TEST(ReportTimeline, ARowPerRankAndABarPerPhase) {
  const std::string html = timeline_html({12, two_rows()});
  EXPECT_EQ(count_of(html, "<rect class=\"row\""), 2u);
  EXPECT_EQ(count_of(html, "<title>"), 7u);
  const auto shows = [&](const std::string& text) {
    EXPECT_NE(html.find(text), std::string::npos) << text << "\n" << html;
  };
  // 0.22 s are 1000 units.
  shows(
      "<rect class=\"k2 f\" x=\"45.45\" y=\"3\" width=\"181.82\" height=\"18\"><title>rank 0 · encoders.image forward "
      "· "
      "40.0 ms</title>");
  shows("<rect class=\"k1\" x=\"454.55\" y=\"3\" width=\"454.55\"");
  shows(
      "<rect class=\"t7\" x=\"136.36\" y=\"3\" width=\"90.91\" height=\"18\"><title>rank 0 · encoders.image forward: "
      "communication or waiting · 20.0 ms</title>");
  shows("rank 0 · optimizer, update");
  shows("y=\"27\"");
  shows("Step 12 <em>milliseconds");
  shows("<span style=\"left:90.91%\">200</span>");
  shows("rank 0 computes 190 ms, communicates or waits 20.0 ms");
  for (const char* key : {"backbone", "encoders.image", "optimizer", "data", "communication and waiting"})
    shows("<i></i>" + std::string(key) + "</span>");
  EXPECT_EQ(html.find("<script"), std::string::npos);
  expect_numbers(html);
}

TEST(ReportTimeline, OddFilesGiveNoOddPages) {
  RankTimeline odd = two_rows();
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const auto& [begin, end] :
       std::vector<std::pair<double, double>>{{nan, 1}, {0, nan}, {0, inf}, {0.2, 0.1}, {-1, 1}})
    odd.ranks[1].push_back({StepAction::forward, "backbone", false, begin, end});
  odd.ranks[1].push_back({StepAction::forward, "encoders.<b>&\"", false, 0.1, 0.2});
  const std::string html = timeline_html({1, odd});
  expect_numbers(html);
  EXPECT_EQ(count_of(html, "<title>"), 8u);
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_NE(html.find("encoders.&lt;b&gt;&amp;&quot;"), std::string::npos);
  EXPECT_EQ(timeline_html({1, {}}), "");
  RankTimeline empty;
  empty.ranks.resize(3);
  EXPECT_EQ(timeline_html({1, empty}), "");
}

TEST(ReportTimeline, OfManyRanksThoseAtBothEnds) {
  RankTimeline many;
  for (int rank = 0; rank < 100; ++rank) {
    many.ranks.push_back({{StepAction::backward, "backbone", false, 0, 0.01 * (rank + 1)}});
    for (int i = 0; i < 400; ++i)
      many.ranks.back().push_back({StepAction::backward, "backbone", true, 1e-5 * i, 1e-5 * i + 1e-6});
  }
  const std::string html = timeline_html({1, many});
  EXPECT_EQ(count_of(html, "<rect class=\"row\""), 32u);
  EXPECT_EQ(count_of(html, "<title>"), 32u * 161);
  EXPECT_NE(html.find(">rank 0</span>"), std::string::npos);
  EXPECT_NE(html.find(">rank 99</span>"), std::string::npos);
  EXPECT_EQ(html.find(">rank 50</span>"), std::string::npos);
  EXPECT_NE(html.find("of 100 ranks those that compute most and least"), std::string::npos);
}

TEST(ReportTimeline, ColoursAreThoseOfTheComponent) {
  const PartColors colors({"connectors.image", "backbone", "encoders.image", "encoders.audio", "connectors.audio"});
  EXPECT_EQ(colors.components().front(), "backbone");
  EXPECT_EQ(colors.of("backbone"), "k1");
  EXPECT_EQ(colors.of("encoders.audio"), "k2");
  EXPECT_EQ(colors.of("connectors.audio"), "k3");
  EXPECT_EQ(colors.of("encoders.image"), "k4");
  EXPECT_EQ(colors.of("data"), "t6");
  EXPECT_EQ(colors.of("something"), "t7");
}

struct RunFiles {
  RunFiles() {
    const WorldLayout layout = world_of(4);
    StepPlan plan;
    plan.layout = layout;
    plan.samples.resize(1);
    plan.samples[0].items = {{"image", {8, 8, 8, {}}, 0, 8}};
    plan.microbatches.resize(1);
    plan.microbatches[0].samples = {{0, {{0, 0, 5}, {1, 5, 5}}}};
    plan.microbatches[0].items["image"] = {{0, 0, {{2, 0, 8}}}};
    RankLog log(folder.path(), layout, 2, 2);
    log.predict({{"backbone", {8, 8, 8, 8}}, {"encoders.image", {5, 6, 7, 8}}, {"", {1, 1, 1, 1}}});
    MetricsWriter metrics(folder / "metrics.jsonl");
    for (int64_t step = 1; step <= 2; ++step) {
      MetricsLine line{step, {}};
      line.add("seconds", 2.0);
      log.step_done(plan, slow_rank_3(1), line);
      metrics.write(line);
    }
    log.timeline(2, two_rows());
  }
  RanksSection section() const {
    return ranks_html(folder / "metrics.jsonl", folder / "ranks.jsonl", folder / "timeline.json");
  }
  TempFolder folder;
};

TEST(ReportRanks, SaysWhoWaitsForWhomAndHowWorkLies) {
  const RunFiles run;
  const RanksSection section = run.section();
  EXPECT_EQ(section.title, "Ranks");
  EXPECT_NE(section.aside.find("ranks wait 30.0 % of the last step; means of 2 steps"), std::string::npos)
      << section.aside;
  const auto shows = [&](const std::string& text) {
    EXPECT_NE(section.body.find(text), std::string::npos) << text << "\n" << section.body;
  };
  shows("<li><b>rank 0</b> waits <b>800 ms</b> of a step for <b>rank 3's encoders.image</b></li>");
  shows("Step 2 <em>");
  shows("<title>rank 3: computes 900 ms, 75.0 % of all; predicted 0.0 %; waits 0.000 ms; 0 items of 0 rows</title>");
  shows("<title>rank 2: computes 100 ms, 8.3 % of all; predicted 100.0 %; waits 800 ms; 1 items of 8 rows</title>");
  shows("most over mean <b>3.000</b>");
  shows("<td data-name=\"by\" class=\"n\">rank 3</td>");
  shows("<td data-name=\"bytes predicted\" class=\"n\">26 B</td><td data-name=\"measured\" class=\"n\">26 B</td>");
  shows("Most over mean: encoders.image");
  shows("Share of a step that ranks wait");
  expect_numbers(section.body);
  ReportData data;
  data.metrics_file = run.folder / "metrics.jsonl";
  data.ranks_file = run.folder / "ranks.jsonl";
  data.timeline_file = run.folder / "timeline.json";
  EXPECT_NE(report_html(data).find("<h2>Ranks</h2>"), std::string::npos);
}

TEST(ReportRanks, OneRankShowsItsStepAlone) {
  RunFiles run;
  {
    MetricsWriter metrics(run.folder / "metrics.jsonl");  // the run goes on with one rank
    MetricsLine line{3, {}};
    metrics.write(line.add("seconds", 1.0));
  }
  const RanksSection section = run.section();
  EXPECT_EQ(section.title, "One step");
  EXPECT_EQ(section.body, timeline_html(*read_timeline(run.folder / "timeline.json")));
  EXPECT_EQ(ranks_html("", "", "").body, "");
}

}  // namespace
}  // namespace loom::test
