// metrics.jsonl: exact numbers, nothing lost, nothing torn.
#include "core/observe/metrics.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::file_count;
using test::message_of;
using test::slurp;
using test::TempFolder;

MetricsLine line_of(int64_t step, double loss) { return MetricsLine{step, {{"loss", loss}}}; }

TEST(Metrics, Json) {
  MetricsLine line{12, {}};
  line.add("loss", 0.1).add("tokens", int64_t{4096}).add("whole", 3.0).add("note", std::string("a \"b\"\n\x01"));
  line.add("bad", std::nan("")).add("big", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(
      metrics_json(line),
      "{\"step\":12,\"loss\":0.1,\"tokens\":4096,\"whole\":3.0,\"note\":\"a \\\"b\\\"\\n\\u0001\",\"bad\":\"nan\","
      "\"big\":\"-inf\"}");
}

TEST(Metrics, EveryLineIsInTheFileAtOnce) {
  TempFolder folder;
  MetricsWriter writer(folder / "m.jsonl");
  writer.write(line_of(1, 0.5));
  EXPECT_EQ(slurp(folder / "m.jsonl"), "{\"step\":1,\"loss\":0.5}\n");
  writer.write(line_of(2, 0.25));
  EXPECT_EQ(slurp(folder / "m.jsonl"), "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
  MetricsWriter again(folder / "m.jsonl");
  again.write(line_of(3, 1));
  EXPECT_EQ(read_metrics(folder / "m.jsonl").size(), 3u);
}

TEST(Metrics, NumbersReadBackToTheLastBit) {
  TempFolder folder;
  MetricsWriter writer(folder / "m.jsonl");
  Philox random({.seed = 11});
  std::vector<double> values = {0.0, -0.0, 5e-324, 1.7976931348623157e308, 1.0 / 3};
  for (uint64_t i = 0; i < 500; ++i) {
    std::array<uint32_t, 4> words = random.block(i);
    double value = 0;
    std::memcpy(&value, words.data(), sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (std::size_t i = 0; i < values.size(); ++i) writer.write(line_of(static_cast<int64_t>(i), values[i]));
  std::vector<MetricsLine> lines = read_metrics(folder / "m.jsonl");
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    double back = lines[i].number("loss", 77);
    ASSERT_EQ(std::memcmp(&back, &values[i], sizeof back), 0) << values[i];
    ASSERT_TRUE(std::holds_alternative<double>(*lines[i].find("loss")));
  }
}

TEST(Metrics, OddValuesReadBack) {
  TempFolder folder;
  MetricsWriter writer(folder / "m.jsonl");
  MetricsLine line{1, {}};
  line.add("nan", std::nan("")).add("inf", std::numeric_limits<double>::infinity()).add("count", int64_t{1} << 60);
  line.add("text", std::string("caf\xc3\xa9")).add("broken", std::string("\xe9"));
  writer.write(line);
  MetricsLine back = read_metrics(folder / "m.jsonl").at(0);
  EXPECT_TRUE(std::isnan(back.number("nan", 0)));
  EXPECT_EQ(back.number("inf", 0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(std::get<int64_t>(*back.find("count")), int64_t{1} << 60);
  EXPECT_EQ(std::get<std::string>(*back.find("text")), "caf\xc3\xa9");
  EXPECT_EQ(std::get<std::string>(*back.find("broken")), "?");
  EXPECT_EQ(back.find("no"), nullptr);
  EXPECT_EQ(back.number("no", 5), 5);
}

TEST(Metrics, TruncateDropsLaterStepsAndKeepsTheRestByteForByte) {
  TempFolder folder;
  std::string kept = "{\"step\":1, \"loss\": 0.50}\n{\"step\":2,\"loss\":0.1}\n{\"step\":2,\"eval\":0.3}\n";
  std::string path = folder.write("m.jsonl", kept + "{\"step\":3,\"loss\":1}\n{\"step\":4,\"lo");
  MetricsWriter writer(path);
  EXPECT_EQ(slurp(path), kept + "{\"step\":3,\"loss\":1}\n");  // the torn line is gone at once
  writer.truncate_after(2);
  EXPECT_EQ(slurp(path), kept);
  writer.write(line_of(3, 2));
  EXPECT_EQ(slurp(path), kept + "{\"step\":3,\"loss\":2.0}\n");
  writer.truncate_after(0);
  EXPECT_EQ(slurp(path), "");
  EXPECT_EQ(file_count(folder.path()), 1u);
}

TEST(Metrics, TornAndForeignLinesDoNotDisturb) {
  TempFolder folder;
  std::string path =
      folder.write("m.jsonl", "{\"step\":1}\nnot json\n{\"loss\":1}\n[1]\n{\"step\":2,\"loss\":3}\n{\"step\":3");
  EXPECT_EQ(read_metrics(path).size(), 2u);
  MetricsWriter writer(path);
  writer.truncate_after(9);
  EXPECT_EQ(slurp(path), "{\"step\":1}\n{\"step\":2,\"loss\":3}\n");
  folder.write("torn", "{\"st");
  MetricsWriter torn(folder / "torn");
  EXPECT_EQ(slurp(folder / "torn"), "");
}

TEST(Metrics, FailuresNameTheFile) {
  TempFolder folder;
  folder.write("file", "");
  EXPECT_EQ(message_of<EnvironmentError>([&] { MetricsWriter(folder / "file/m.jsonl"); }),
            "cannot open " + folder.path() + "/file/m.jsonl: Not a directory");
  EXPECT_EQ(message_of<UserError>([&] { read_metrics(folder / "no.jsonl"); }), folder / "no.jsonl: no such file");
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsWriter full("/dev/full");
  EXPECT_EQ(message_of<EnvironmentError>([&] { full.write(line_of(1, 1)); }), "cannot write /dev/full: disk full");
}

}  // namespace
}  // namespace loom
