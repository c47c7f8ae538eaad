// What the report shows of times is what the files hold, and the files hold what was measured.
#include "pipelines/report_timing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "pipelines/report_page.h"
#include "pipelines/step_profile.h"
#include "pipelines/step_timing.h"
#include "tests/core/base/temp_folder.h"

namespace loom::test {
namespace {

// Of step n: everything n times as long.
StepTime time_of(double n) {
  StepTime time;
  time.units = {{"encoders.image", "blocks.0", {0.010 * n, 0.004 * n, 0, 0.002 * n}, {}},
                {"backbone", "blocks.0", {0.030 * n, 0.006 * n, 0, 0.004 * n}, {0.060 * n, 0.012 * n, 0, 0.008 * n}},
                {"backbone", "head", {0.020 * n, 0, 0, 0.001 * n}, {0.040 * n, 0, 0, 0.003 * n}}};
  for (const UnitTime& unit : time.units) (time.passes += unit.forward) += unit.backward;
  time.optimizer = 0.012 * n;
  time.data = 0.003 * n;
  time.rest = 0.005 * n;
  time.seconds = time.passes.total() + time.optimizer + time.data + time.rest;
  return time;
}

struct Files {
  explicit Files(const std::vector<double>& steps)
      : metrics(folder / "metrics.jsonl"), timing(folder / "timing.jsonl") {
    MetricsWriter lines(metrics), times(timing);
    int64_t step = 0;
    for (const double n : steps) {
      MetricsLine line{++step, {}};
      const StepTime time = time_of(n);
      line.add("seconds", time.seconds);
      add_times(line, time, true);
      lines.write(line);
      times.write_json(timing_json(step, time, {{"backbone.blocks.0", 24e9 * n}, {"backbone.head", 6.4e9 * n}}));
    }
  }
  TempFolder folder;
  std::string metrics, timing;
};

TEST(StepTiming, KindsOfAStepAddUp) {
  MetricsLine line{1, {}};
  add_times(line, time_of(1), true);
  double sum = 0;
  for (const auto& [name, value] : line.values) sum += std::get<double>(value);
  EXPECT_NEAR(sum, time_of(1).seconds, 1e-12);
  EXPECT_EQ(line.find("time/communication"), nullptr);
  MetricsLine several{1, {}};
  add_times(several, time_of(1), false);
  EXPECT_NE(several.find("time/communication"), nullptr);
}

TEST(StepTiming, ALineSaysItForEveryUnit) {
  const std::string text = timing_json(7, time_of(1), {{"backbone.head", 2e9}});
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["step"], 7);
  ASSERT_EQ(json["units"].size(), 3u);
  EXPECT_EQ(json["units"][1]["unit"], "backbone.blocks.0");
  EXPECT_EQ(json["units"][1]["backward"]["attention"], 0.012);
  EXPECT_FALSE(json["units"][1].contains("flops"));
  EXPECT_FALSE(json["units"][1]["forward"].contains("communication"));
  EXPECT_EQ(json["units"][2]["flops"], 2e9);
}

TEST(StepTiming, ReadBackAsMeansOfTheLastLines) {
  const Files files({9, 9, 1, 3});
  {
    MetricsWriter broken(files.timing);
    broken.write_json("{\"step\":5,\"units\":3}");
    broken.write_json("nothing");
  }
  const std::vector<TimedUnit> units = mean_timing(files.timing, 4);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[1].unit, "backbone.blocks.0");
  EXPECT_NEAR(units[1].forward.gemm, 0.060, 1e-9);
  EXPECT_NEAR(units[1].backward.other, 0.016, 1e-9);
  EXPECT_NEAR(units[1].flops, 48e9, 1);
  EXPECT_NEAR(mean_timing(files.timing, 100)[1].forward.gemm, 0.030 * 22 / 4, 1e-9);
  EXPECT_TRUE(mean_timing(files.folder / "none", 4).empty());
  EXPECT_TRUE(mean_timing(files.folder.write("empty", ""), 4).empty());
  EXPECT_TRUE(mean_timing(files.folder.write("torn", "{\"step\":1,\"units\":[{\"un"), 4).empty());
}

TEST(StepTiming, LongRunsOfLargeModelsWriteFewerLines) {
  EXPECT_EQ(timing_interval(2000, 12), 1);
  const int64_t every = timing_interval(1'000'000, 100);
  EXPECT_GT(every, 100);
  EXPECT_LT(every, 2000);
}

TEST(StepTiming, OneLineForAWholeRun) {
  TimeTotals totals;
  EXPECT_TRUE(totals.empty());
  totals.add(1, time_of(1));
  totals.add(2, time_of(3));
  EXPECT_EQ(totals.line(),
            "gemm 73 % · attention 10 % · other 8 % · optimizer 5 % · data 1 % (most: 1 % of step 1) · rest 2 %");
  StepTime late = time_of(1);
  late.data = late.seconds;
  late.seconds *= 2;
  totals.add(3, late);
  EXPECT_NE(totals.line().find("(most: 50 % of step 3)"), std::string::npos) << totals.line();
}

TEST(ReportTiming, NumbersAreThoseOfTheFiles) {
  const Files files({1, 3});
  const TimingSection section = timing_html(files.metrics, files.timing, 500e9);
  const std::string& html = section.body;
  const auto shows = [&](const std::string& text) {
    EXPECT_NE(html.find(text), std::string::npos) << text << "\n" << html;
  };
  EXPECT_NE(section.aside.find("a step takes 440 ms, mean of the last 2 steps; data took 1.4 % of all steps, at most "
                               "9.00 ms (step 2)"),
            std::string::npos)
      << section.aside;
  // Of the step: 0.220 s for n = 1, 0.440 s in the mean.
  shows("GEMM <b>72.7 %</b> <span>320 ms</span>");
  shows("attention <b>10.0 %</b> <span>44.0 ms</span>");
  shows("other work of units <b>8.2 %</b> <span>36.0 ms</span>");
  shows("optimizer <b>5.5 %</b> <span>24.0 ms</span>");
  shows("data <b>1.4 %</b> <span>6.00 ms</span>");
  shows("between <b>2.3 %</b> <span>10.0 ms</span>");
  shows("<i class=\"t1\" style=\"width:72.73%\"></i>");
  EXPECT_EQ(html.find("communication"), std::string::npos);
  // Components, then units; 24 GFLOP in 0.120 s are 200 GFLOP/s.
  shows(
      "<tr><th>backbone</th><td data-name=\"of a step\" class=\"n\">83.6 %</td><td data-name=\"forward\" "
      "class=\"n\">122 ms</td><td data-name=\"backward\" class=\"n\">246 ms</td><td data-name=\"GEMM\" "
      "class=\"n\">300 ms</td><td data-name=\"attention\" class=\"n\">36.0 ms</td><td data-name=\"other\" "
      "class=\"n\">32.0 ms</td>");
  shows("<tr><th>backbone.blocks.0</th><td data-name=\"of a step\" class=\"n\">54.5 %</td>");
  shows("<td data-name=\"speed\" class=\"n\">200 GFLOP/s</td><td data-name=\"of peak\" class=\"n\">40 %</td>");
  shows(
      "<tr><th>encoders.image</th><td data-name=\"of a step\" class=\"n\">7.3 %</td><td data-name=\"forward\" "
      "class=\"n\">32.0 ms</td><td data-name=\"backward\" class=\"n\">–</td>");
  shows("<details class=\"units\" open><summary>3 units</summary>");
  shows("Shares of a step");
}

TEST(ReportTiming, LeftOutWhereNothingIsKnown) {
  TempFolder folder;
  EXPECT_EQ(timing_html("", "", 0).body, "");
  const std::string old = folder.write("metrics.jsonl", "{\"step\":1,\"loss\":2.0,\"seconds\":1.0}\n");
  EXPECT_EQ(timing_html(old, folder / "timing.jsonl", 0).body, "");
  const Files files({1});
  const std::string only_kinds = timing_html(files.metrics, "", 0).body;
  EXPECT_EQ(only_kinds.find("<table"), std::string::npos);
  EXPECT_NE(only_kinds.find("72.7 %"), std::string::npos);
  EXPECT_EQ(timing_html(files.metrics, files.timing, 0).body.find("of peak"), std::string::npos);
  ReportData data;
  data.metrics_file = files.metrics;
  data.timing_file = files.timing;
  EXPECT_NE(report_html(data).find("<h2>Where the time goes</h2>"), std::string::npos);
}

TEST(ReportTiming, ManyUnitsAreFoldedAndNamesAreEscaped) {
  TempFolder folder;
  const Files files({1});
  StepTime time = time_of(1);
  for (int i = 0; i < 40; ++i) time.units.push_back({"backbone", concat("<b>", i), {0.001, 0, 0, 0}, {}});
  {
    MetricsWriter writer(files.timing);
    writer.write_json(timing_json(2, time, {}));
  }
  const std::string html = timing_html(files.metrics, files.timing, 0).body;
  EXPECT_NE(html.find("<details class=\"units\"><summary>43 units</summary>"), std::string::npos);
  EXPECT_NE(html.find("backbone.&lt;b&gt;7"), std::string::npos);
}

TEST(StepProfile, StepsOfTheCommandLine) {
  EXPECT_EQ(parse_profile_steps("3:5").first, 3);
  EXPECT_EQ(parse_profile_steps("3:5").last, 5);
  EXPECT_EQ(parse_profile_steps("7").last, 7);
  for (const char* wrong : {"", ":", "3:", ":5", "0", "-1", "3-5", "1:2:3", "3:5 ", "5:3", "99999999999999999999"})
    EXPECT_THROW(parse_profile_steps(wrong), UserError) << wrong;
}

}  // namespace
}  // namespace loom::test
