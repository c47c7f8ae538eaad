// The report as a file: self-contained, escaped, small, with the right things marked.
#include "pipelines/report.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/observe/metrics.h"
#include "pipelines/png.h"
#include "pipelines/report_metrics.h"
#include "pipelines/report_page.h"
#include "pipelines/report_samples.h"

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

ReportSample sample_of(const std::string& truth, const std::string& output, bool correct, int64_t side) {
  ReportSample sample;
  const Tensor pixels = at::arange(side * side, at::kLong) * 37 % 251;
  if (side > 0) sample.png = encode_png(pixels.to(at::kByte).view({side, side, 1}));
  sample.truth = truth;
  sample.outputs.push_back({100, output, correct});
  return sample;
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

// Noise is the worst picture there is: nothing in it can be compressed.
TEST_F(ReportTest, TenThousandStepsWithPicturesStayBelowThreeMegabytes) {
  {
    std::ofstream file(folder_ + "/metrics.jsonl");
    for (int64_t step = 1; step <= 10000; ++step) {
      const double noise = static_cast<double>(step * 7919 % 1000) / 1000;
      MetricsLine line{step, {}};
      line.add("loss", step == 6200 ? 87.25 : 5.0 / (1 + 0.01 * static_cast<double>(step)) + 0.1 * noise);
      line.add("lr", 1e-3).add("grad_norm", step == 4321 ? 512.5 : 1 + noise).add("seconds", 0.1 + 0.01 * noise);
      line.add("data_seconds", 0.01 * noise).add("tokens_per_second", 20000 + 1000 * noise);
      line.add("flops_per_second", 1.5e11 + 1e10 * noise).add("peak_share", 0.6 + 0.05 * noise);
      line.add("rss", int64_t{900'000'000} + step * 1000).add("packed_fill", 0.9 + 0.1 * noise);
      line.add("loss/router", 0.1 + noise);
      if (step % 100 == 0) line.add("eval_loss", 0.2 + noise).add("exact_match", 0.8).add("token_accuracy", 0.9);
      file << metrics_json(line) << "\n";
    }
  }
  ReportData data;
  data.title = "long";
  data.metrics_file = folder_ + "/metrics.jsonl";
  std::vector<std::string> pictures;
  for (int i = 0; i < 8; ++i) pictures.push_back(report_picture(at::randint(0, 256, {400, 300, 3}, at::kByte), 240));
  for (size_t i = 0; i < 240; ++i) {
    ReportSample sample;
    sample.png = pictures[i % pictures.size()];
    sample.name = "eval.0#" + std::to_string(i);
    sample.prompt = "what is in the picture?";
    sample.truth = "a photo of a bag on a table near a window";
    for (int step = 10000; step > 0; step -= 100)
      sample.outputs.push_back({step, "a photo of a coat, said at step " + std::to_string(step), false});
    data.samples.push_back(std::move(sample));
  }
  write_report(folder_, data);
  const std::string page = read_text(folder_ + "/report.html");
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_EQ(count(page, "<figure"), 10u);
  EXPECT_EQ(count(page, "<img "), 240u);
  EXPECT_EQ(count(page, "picture left out"), 0u);
  EXPECT_NE(page.find("– 87.25\""), std::string::npos) << "the spike of the loss";
  EXPECT_NE(page.find("– 512\""), std::string::npos) << "the spike of the gradient norm";
}

TEST_F(ReportTest, PicturesThatNobodyBoundedAreLeftOut) {
  ReportData data;
  for (int i = 0; i < 40; ++i) {
    ReportSample sample = sample_of("a", "a", true, 0);
    sample.png = encode_png(at::randint(0, 256, {300, 300, 3}, at::kByte));
    data.samples.push_back(std::move(sample));
  }
  const std::string page = report_html(data);
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_GT(count(page, "picture left out"), 20u);
}

TEST_F(ReportTest, IsSelfContained) {
  write_metrics(100);
  ReportData data;
  data.title = "demo";
  data.metrics_file = folder_ + "/metrics.jsonl";
  data.samples.push_back(sample_of("a", "a", true, 28));
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
  data.title = data.subtitle = data.state = data.note = data.updated = data.recipe = data.samples_note = evil;
  data.numbers.push_back({evil, evil, evil});
  data.facts.push_back({evil, evil});
  data.skipped.push_back({evil, 3, evil});
  data.plan.push_back({evil, 3, evil});
  data.samples.push_back(sample_of(evil, evil, true, 2));
  data.samples.back().prompt = data.samples.back().name = evil;
  data.samples.push_back(sample_of(evil, evil + " " + evil, false, 0));
  data.samples.back().outputs.push_back({50, evil, false});
  const std::string page = report_html(data);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(count(page, "<script>"), 1u);
  EXPECT_EQ(html_escape("a\x80"), "a\xef\xbf\xbd");
  EXPECT_EQ(html_escape("h\xc3\xa4 \x01"), "h\xc3\xa4 \xef\xbf\xbd");
}

TEST_F(ReportTest, MarksWhatIsWrong) {
  ReportData data;
  data.samples.push_back(sample_of("a photo of bag", "a photo of bag", true, 28));
  data.samples.push_back(sample_of("a photo of bag here", "a photo of ankle boot here", false, 28));
  data.samples.push_back(sample_of("a photo of bag", "", false, 400));
  const std::string page = report_html(data);
  EXPECT_EQ(count(page, "<li class=\"right\">"), 1u);
  EXPECT_EQ(count(page, "<li class=\"wrong\">"), 2u);
  EXPECT_NE(page.find("<p class=\"said\">a photo of <mark>ankle boot</mark> here</p>"), std::string::npos);
  EXPECT_NE(page.find("(nothing)"), std::string::npos);
  EXPECT_EQ(count(page, "class=\"small\""), 2u);
  EXPECT_NE(page.find("Wrong 2"), std::string::npos);
}

TEST_F(ReportTest, SaysHowFarARunIs) {
  ReportData data;
  data.state = "running";
  data.step = 212;
  data.steps = 800;
  EXPECT_NE(report_html(data).find("Running · step 212 of 800"), std::string::npos);
  EXPECT_NE(report_html(data).find("width:26%"), std::string::npos);
  data.step = 800;
  data.state = "finished";
  EXPECT_EQ(report_html(data).find("class=\"track\""), std::string::npos);
  EXPECT_NE(report_html(data).find("Finished · 800 steps"), std::string::npos);
  data.state = "failed";
  data.note = "cannot write: disk full";
  data.updated = "2025-06-01 12:30:05";
  EXPECT_NE(report_html(data).find("<p class=\"note\">cannot write: disk full</p>"), std::string::npos);
  EXPECT_NE(report_html(data).find("<time>2025-06-01 12:30:05</time>"), std::string::npos);
}

TEST_F(ReportTest, EarlierOutputsAreFoldedAndEqualNeighboursAreOne) {
  ReportData data;
  ReportSample sample = sample_of("bag", "bag", true, 0);
  for (const auto& [step, text] :
       std::vector<std::pair<int64_t, std::string>>{{80, "bag"}, {60, "coat"}, {40, "coat"}, {20, "shirt"}})
    sample.outputs.push_back({step, text, text == "bag"});
  data.samples.push_back(sample);
  const std::string page = report_html(data);
  EXPECT_EQ(count(page, "<details>"), 1u);
  EXPECT_NE(page.find("step 40</span> <mark>coat</mark>"), std::string::npos) << "the step since which it said so";
  EXPECT_EQ(page.find("step 60</span>"), std::string::npos);
  EXPECT_NE(page.find("step 20</span> <mark>shirt</mark>"), std::string::npos);
  EXPECT_EQ(page.find("step 80</span>"), std::string::npos) << "the same as the newest";
}

TEST_F(ReportTest, LongTextsAreRowsAndAreCut) {
  ReportData data;
  data.samples.push_back(sample_of("short", "short", true, 28));
  EXPECT_EQ(count(report_html(data), "class=\"samples rows\""), 0u);
  data.samples[0].prompt = std::string(5000, 'x');
  const std::string page = report_html(data);
  EXPECT_EQ(count(page, "class=\"samples rows\""), 1u);
  EXPECT_EQ(page.find(std::string(1201, 'x')), std::string::npos);
  EXPECT_NE(page.find(std::string(1200, 'x') + " …"), std::string::npos);
}

TEST_F(ReportTest, PlanShowsWhatIsKnown) {
  ReportData data;
  data.plan.push_back({"backbone", 228200, "2 lanes, sp 2", 912800, 912800, 1825600, -1});
  data.plan.push_back({"encoders.image", 154300, "4 lanes", 617200, 0, 0, -1});
  const std::string page = report_html(data);
  EXPECT_NE(page.find("What ran where"), std::string::npos);
  EXPECT_NE(page.find("<td data-name=\"weights\" class=\"n\">912.8 kB</td>"), std::string::npos);
  EXPECT_NE(page.find("<td data-name=\"gradients\" class=\"n\">0</td>"), std::string::npos);
  EXPECT_EQ(page.find("activations</th>"), std::string::npos) << "nobody knows them";
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
