// Axes with round ticks, curves that keep what stands out, and markup without odd numbers.
#include "pipelines/report_chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pipelines/report_curves.h"

namespace loom {
namespace {

TEST(ReportChart, ThinningKeepsExtremesAndOrder) {
  Points points;
  for (int i = 0; i < 1000; ++i) points.emplace_back(i, i == 500 ? 99.0 : 1.0);
  const std::vector<Bucket> buckets = thin_out(points, 64);
  ASSERT_EQ(buckets.size(), 64u);
  double highest = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    highest = std::max(highest, buckets[i].max);
    EXPECT_EQ(buckets[i].min, 1);
    EXPECT_TRUE(i == 0 || buckets[i].x > buckets[i - 1].x);
  }
  EXPECT_EQ(highest, 99);
  EXPECT_EQ(thin_out(points, 5000).size(), 1000u);
  EXPECT_TRUE(thin_out({}, 10).empty());
}

TEST(ReportChart, ChartNumbers) {
  EXPECT_EQ(chart_number(0.84219, NumberStyle::percent), "84.2 %");
  EXPECT_EQ(chart_number(0.0412, NumberStyle::plain), "0.0412");
  EXPECT_EQ(chart_number(1.5, NumberStyle::plain), "1.500");
  EXPECT_EQ(chart_number(2e-5, NumberStyle::plain), "2e-5");
}

TEST(ReportChart, FlatAndSinglePointCurvesHaveFiniteCoordinates) {
  for (const Points& points :
       {Points{{1, 0}}, Points{{1, 3}, {2, 3}}, Points{{5, -1}, {6, -1}}, Points{{1, 1e-12}, {2, 1e9}}}) {
    for (const bool log : {false, true}) {
      const std::string html = chart_html({"x", NumberStyle::plain, !log, log, false, {{"s", "a", points}}});
      EXPECT_NE(html.find("<path class=\"line a\""), std::string::npos);
      EXPECT_EQ(html.find("nan"), std::string::npos);
      EXPECT_EQ(html.find("inf"), std::string::npos);
    }
  }
  EXPECT_EQ(chart_html({"x", NumberStyle::plain, false, false, false, {{"s", "a", {}}}}), "");
}

TEST(ReportChart, TicksAreRoundAndAllAlike) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(tick_texts(linear_axis(0, 0.0019, 4), NumberStyle::plain),
            (Texts{"0", "0.0005", "0.0010", "0.0015", "0.0020"}));
  EXPECT_EQ(tick_texts(linear_axis(0, 5.7, 4), NumberStyle::plain), (Texts{"0", "2", "4", "6"}));
  EXPECT_EQ(tick_texts(linear_axis(0.31, 0.44, 4), NumberStyle::plain), (Texts{"0.30", "0.35", "0.40", "0.45"}));
  EXPECT_EQ(tick_texts(linear_axis(0, 1, 4), NumberStyle::percent), (Texts{"0 %", "25 %", "50 %", "75 %", "100 %"}));
  EXPECT_EQ(tick_texts(linear_axis(0, 28000, 4), NumberStyle::count), (Texts{"0", "10K", "20K", "30K"}));
  EXPECT_EQ(tick_texts(linear_axis(0, 1.3e9, 4), NumberStyle::bytes), (Texts{"0", "0.5 GB", "1.0 GB", "1.5 GB"}));
  EXPECT_EQ(tick_texts(linear_axis(0, 2.4e-5, 4), NumberStyle::plain), (Texts{"0", "1e-5", "2e-5", "3e-5"}));
  EXPECT_EQ(tick_texts(log_axis(0.05, 6), NumberStyle::plain), (Texts{"0.1", "0.3", "1", "3"}));
  EXPECT_EQ(tick_texts(log_axis(0.4, 6), NumberStyle::plain), (Texts{"0.5", "1", "2", "5"}));
  EXPECT_EQ(tick_texts(log_axis(1e-4, 80), NumberStyle::plain), (Texts{"1e-4", "0.001", "0.01", "0.1", "1", "10"}));
}

TEST(ReportChart, AnAxisHoldsItsValues) {
  for (const double low : {-3.0, 0.0, 1e-9, 0.7, 5e6}) {
    for (const double span : {0.0, 1e-12, 0.3, 17.0, 1e8}) {
      const Axis axis = linear_axis(low, low + span, 4);
      EXPECT_LE(axis.low, low + 1e-9 * std::abs(low));
      EXPECT_GE(axis.high, low + span - 1e-9 * std::abs(low));
      EXPECT_GT(axis.high, axis.low);
      EXPECT_GE(axis.ticks.size(), 2u);
      EXPECT_LE(axis.ticks.size(), 8u);
    }
  }
}

TEST(ReportChart, OneStepThatStandsOutIsDrawnAndSaid) {
  Points points;
  for (int i = 1; i <= 10000; ++i) points.emplace_back(i, i == 7123 ? 9.0 : 2.0 + 0.001 * (i % 5));
  const std::string html = chart_html({"x", NumberStyle::plain, false, false, true, {{"s", "a", points}}});
  EXPECT_NE(html.find("– 9.000\""), std::string::npos) << "in the read-out";
  EXPECT_NE(html.find("highest 9.000"), std::string::npos) << "in words";
  // The axis ends at 10; so 9 of 2..10 lies at an eighth from the top, and only the band reaches it.
  EXPECT_NE(html.find("class=\"band a\""), std::string::npos);
  EXPECT_NE(html.find(" 125.0L"), std::string::npos);
  EXPECT_LT(html.size(), 60000u);
}

TEST(ReportChart, AWideRangeHasALogarithmicAxis) {
  const auto html = [](double low) {
    return chart_html({"x", NumberStyle::plain, false, true, false, {{"s", "a", {{1, 6}, {2, low}}}}});
  };
  EXPECT_NE(html(0.05).find("log scale"), std::string::npos);
  EXPECT_EQ(html(2).find("log scale"), std::string::npos);
  EXPECT_EQ(html(0).find("log scale"), std::string::npos);
  EXPECT_EQ(html(-1).find("log scale"), std::string::npos);
}

TEST(ReportChart, ChartsThatARunHas) {
  const std::map<std::string, Points> metrics = {
      {"loss", {{1, 5}, {2, 3}}},  {"seconds", {{1, 2}, {2, 4}}},  {"data_seconds", {{1, 1}, {2, 1}, {3, 1}}},
      {"exact_match", {{2, 0.5}}}, {"token_accuracy", {{2, 0.7}}}, {"flops_per_second", {{1, 1e9}}},
      {"rss", {{1, 1e9}}},         {"loss/router", {{1, 2}}}};
  std::vector<std::string> drawn;
  for (const Chart& chart : training_charts(metrics)) {
    if (!chart_html(chart).empty()) drawn.push_back(chart.title);
    if (chart.title == "Time spent waiting for data") {
      EXPECT_EQ(chart.series[0].points, (Points{{1, 0.5}, {2, 0.25}}));
    }
  }
  EXPECT_EQ(drawn, (std::vector<std::string>{"Loss per supervised token", "Held-out answers", "Arithmetic speed",
                                             "Time spent waiting for data", "Memory", "Loss: router"}));
}

}  // namespace
}  // namespace loom
