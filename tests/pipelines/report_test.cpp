// The report as a file: self-contained, escaped, small, with the right things marked; and its pictures as pictures.
#include "pipelines/report.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/file.h"
#include "pipelines/png.h"
#include "pipelines/report_chart.h"
#include "pipelines/report_page.h"

namespace loom {
namespace {

class ReportTest : public testing::Test {
 protected:
  ReportTest() : folder_(testing::TempDir() + "report_test_" + std::to_string(getpid())) { make_dirs(folder_); }
  ~ReportTest() override { std::filesystem::remove_all(folder_); }

  void write_metrics(int64_t steps) {
    std::ofstream file(folder_ + "/metrics.jsonl");
    for (int64_t step = 1; step <= steps; ++step) {
      file << "{\"step\":" << step << ",\"loss\":" << 5.0 / static_cast<double>(step) + 0.1
           << ",\"lr\":0.001,\"grad_norm\":" << 1 + step % 7 << ",\"tokens_per_second\":" << 20000 + step % 100
           << "}\n";
      if (step % 500 == 0) file << "{\"step\":" << step << ",\"eval_loss\":0.2,\"exact_match\":0.8}\n";
    }
  }
  static size_t count(const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  }

  std::string folder_;
};

Tensor gradient_picture(int64_t height, int64_t width, int64_t channels) {
  const Tensor values = at::arange(height * width * channels, at::kLong) * 37 % 251;
  return values.to(at::kByte).view({height, width, channels});
}

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// A second reading of the format, as straight as possible: chunks, checksums, inflate, unfilter.
Tensor decode_png(const std::string& png) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  int64_t width = 0, height = 0, channels = 0;
  std::string packed;
  for (size_t at = 8; at < png.size();) {
    const uint32_t length = big_endian(png, at);
    const std::string body = png.substr(at + 4, 4 + length);
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())),
              big_endian(png, at + 8 + length));
    if (body.substr(0, 4) == "IHDR") {
      width = big_endian(body, 4);
      height = big_endian(body, 8);
      EXPECT_EQ(body[12], 8);
      channels = body[13] == 0 ? 1 : body[13] == 2 ? 3 : 4;
    }
    if (body.substr(0, 4) == "IDAT") packed += body.substr(4);
    at += 12 + length;
  }
  std::string rows(static_cast<size_t>(height * (width * channels + 1)), '\0');
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                       packed.size()),
            Z_OK);
  EXPECT_EQ(size, rows.size());
  Tensor out = at::zeros({height, width, channels}, at::kByte);
  uint8_t* pixels = out.mutable_data_ptr<uint8_t>();
  for (int64_t y = 0; y < height; ++y) {
    const auto* row = reinterpret_cast<const uint8_t*>(rows.data()) + y * (width * channels + 1);
    for (int64_t i = 0; i < width * channels; ++i) {
      uint8_t* here = pixels + y * width * channels + i;
      const int left = i >= channels ? here[-channels] : 0;
      const int up = y > 0 ? here[-width * channels] : 0;
      const int corner = y > 0 && i >= channels ? here[-width * channels - channels] : 0;
      int guess = row[0] == 1 ? left : row[0] == 2 ? up : 0;
      if (row[0] == 4) {
        const int p = left + up - corner;
        const int a = std::abs(p - left), b = std::abs(p - up), c = std::abs(p - corner);
        guess = a <= b && a <= c ? left : b <= c ? up : corner;
      }
      *here = static_cast<uint8_t>(row[1 + i] + guess);
    }
  }
  return out;
}

TEST_F(ReportTest, PngRoundTrip) {
  for (const int64_t channels : {1, 3, 4}) {
    for (const Tensor& picture :
         {gradient_picture(28, 28, channels), gradient_picture(1, 5, channels), gradient_picture(9, 1, channels)}) {
      EXPECT_TRUE(at::equal(decode_png(encode_png(picture)), picture)) << picture.sizes();
    }
    const Tensor smooth = at::arange(64, at::kLong).view({8, 8, 1}).expand({8, 8, channels}).to(at::kByte);
    EXPECT_TRUE(at::equal(decode_png(encode_png(smooth)), smooth));
  }
  EXPECT_THROW(encode_png(at::zeros({4, 4, 2}, at::kByte)), InternalError);
}

TEST_F(ReportTest, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST_F(ReportTest, LargePicturesAreScaledDown) {
  EXPECT_LT(png_data_uri(gradient_picture(1200, 900, 3)).size(), 400u * 1024);
  EXPECT_EQ(png_data_uri(at::full({1000, 500, 3}, 77, at::kByte)),
            png_data_uri(at::full({320, 160, 3}, 77, at::kByte)));
}

TEST_F(ReportTest, ThinningKeepsExtremesAndOrder) {
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

TEST_F(ReportTest, MetricsOfRepeatedStepsAndTornLines) {
  {
    std::ofstream file(folder_ + "/metrics.jsonl");
    file
        << "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4,\"note\":\"x\"}\n{\"step\":2,\"loss\":3}\n{\"step\":3,\"lo";
  }
  const std::map<std::string, Points> curves = metric_curves(folder_ + "/metrics.jsonl");
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_EQ(curves.at("loss"), (Points{{1, 5}, {2, 3}}));
  EXPECT_TRUE(metric_curves(folder_ + "/none.jsonl").empty());
}

TEST_F(ReportTest, ChartsOfATrainingRun) {
  const std::map<std::string, Points> metrics = {
      {"loss", {{1, 5}, {2, 3}}}, {"seconds", {{1, 2}, {2, 4}}}, {"data_seconds", {{1, 1}, {2, 1}, {3, 1}}}};
  std::vector<std::string> drawn;
  for (const Chart& chart : training_charts(metrics)) {
    if (!chart_html(chart).empty()) drawn.push_back(chart.title);
    if (chart.title == "Time spent waiting for data") {
      EXPECT_EQ(chart.series[0].points, (Points{{1, 0.5}, {2, 0.25}}));
    }
  }
  EXPECT_EQ(drawn, (std::vector<std::string>{"Loss per supervised token", "Time spent waiting for data"}));
}

TEST_F(ReportTest, ChartNumbers) {
  EXPECT_EQ(chart_number(0.84219, NumberStyle::percent), "84.2 %");
  EXPECT_EQ(chart_number(0.0412, NumberStyle::plain), "0.0412");
  EXPECT_EQ(chart_number(1.5, NumberStyle::plain), "1.500");
  EXPECT_EQ(chart_number(2e-5, NumberStyle::plain), "2.0e-05");
}

TEST_F(ReportTest, FlatAndSinglePointCurvesHaveFiniteCoordinates) {
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

TEST_F(ReportTest, TenThousandStepsWithPicturesStayBelowThreeMegabytes) {
  write_metrics(10000);
  ReportData data;
  data.title = "long";
  data.metrics_file = folder_ + "/metrics.jsonl";
  for (int i = 0; i < 1000; ++i)
    data.samples.push_back({gradient_picture(28, 28, 3), "a photo of bag", "a photo of coat", false});
  write_report(folder_, data);
  const std::string page = read_text(folder_ + "/report.html");
  EXPECT_LT(page.size(), 3u * 1000 * 1000);
  EXPECT_EQ(count(page, "<figure"), 5u);
  EXPECT_EQ(count(page, "<img "), 240u);
}

TEST_F(ReportTest, IsSelfContained) {
  write_metrics(100);
  ReportData data;
  data.title = "demo";
  data.metrics_file = folder_ + "/metrics.jsonl";
  data.samples.push_back({gradient_picture(28, 28, 1), "a", "a", true});
  const std::string page = report_html(data);
  for (const char* reference : {"http:", "https:", "//cdn", "@import", "url(", "<iframe"})
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  EXPECT_EQ(count(page, "src=\""), count(page, "src=\"data:image/png;base64,"));
  EXPECT_EQ(count(page, "href=\""), count(page, "href=\"data:,\""));
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST_F(ReportTest, EscapesEverythingFromOutside) {
  const std::string evil = "<script>alert(1)</script>\"&";
  ReportData data;
  data.title = data.subtitle = data.state = data.recipe = data.samples_note = evil;
  data.numbers.push_back({evil, evil, evil});
  data.facts.push_back({evil, evil});
  data.skipped.push_back({evil, 3});
  data.samples.push_back({gradient_picture(2, 2, 1), evil, evil, true});
  data.samples.push_back({Tensor(), evil, evil + " " + evil, false});
  const std::string page = report_html(data);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(count(page, "<script>"), 1u);
  EXPECT_EQ(html_escape("a\x80"), "a\xef\xbf\xbd");
  EXPECT_EQ(html_escape("h\xc3\xa4 \x01"), "h\xc3\xa4 \xef\xbf\xbd");
}

TEST_F(ReportTest, MarksWhatIsWrong) {
  ReportData data;
  data.samples.push_back({gradient_picture(28, 28, 1), "a photo of bag", "a photo of bag", true});
  data.samples.push_back({gradient_picture(28, 28, 1), "a photo of bag here", "a photo of ankle boot here", false});
  data.samples.push_back({gradient_picture(400, 400, 1), "a photo of bag", "", false});
  const std::string page = report_html(data);
  EXPECT_EQ(count(page, "<li class=\"right\">"), 1u);
  EXPECT_EQ(count(page, "<li class=\"wrong\">"), 2u);
  EXPECT_NE(page.find("<p>a photo of <mark>ankle boot</mark> here</p>"), std::string::npos);
  EXPECT_NE(page.find("(nothing)"), std::string::npos);
  EXPECT_EQ(count(page, "class=\"small\""), 2u);
  EXPECT_NE(page.find("Wrong 2"), std::string::npos);
}

TEST_F(ReportTest, SaysHowFarARunIs) {
  ReportData data;
  data.state = "running";
  data.step = 212;
  data.steps = 800;
  EXPECT_NE(report_html(data).find("running at step 212 of 800"), std::string::npos);
  EXPECT_NE(report_html(data).find("width:26%"), std::string::npos);
  data.step = 800;
  EXPECT_EQ(report_html(data).find("class=\"track\""), std::string::npos);
}

TEST_F(ReportTest, LeavesOutEmptySections) {
  const std::string page = report_html({});
  EXPECT_EQ(count(page, "<section>"), 0u);
}

TEST_F(ReportTest, SummaryKeepsItsOrderAndReplacesTheOldOne) {
  Summary summary;
  write_summary(folder_, summary);
  summary.exact_match = 0.5;
  summary.samples = 10000;
  summary.train_seconds = 12.5;
  summary.steps = 1500;
  write_summary(folder_, summary);
  EXPECT_EQ(read_text(folder_ + "/summary.json"),
            "{\n  \"exact_match\": 0.5,\n  \"exact_match_swapped\": null,\n  \"samples\": 10000,\n  \"train_seconds\": "
            "12.5,\n  \"steps\": 1500\n}\n");
}

TEST_F(ReportTest, AFolderThatIsNotThereIsAnEnvironmentError) {
  EXPECT_THROW(write_report(folder_ + "/missing", {}), EnvironmentError);
  EXPECT_THROW(write_summary(folder_ + "/missing", {}), EnvironmentError);
}

}  // namespace
}  // namespace loom
