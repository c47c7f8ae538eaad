// ranks.jsonl and timeline.json say what a table says, read back as means, and are read with care.
#include "pipelines/rank_files.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "pipelines/rank_log.h"
#include "tests/core/base/temp_folder.h"
#include "tests/pipelines/ranks.h"

namespace loom::test {
namespace {

TEST(RankFiles, ALineSaysItForEveryComponentAndRank) {
  const RankTable table = slow_rank_3(1);
  const std::string text =
      ranks_json(7, even_loads(), table, waits_of(table, world_of(4)), {{"backbone", {8, 8, 8, -1}}});
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["seconds"], (std::vector<double>{2, 2, 2, 2}));
  const nlohmann::json& encoder = json["components"]["encoders.image"];
  EXPECT_EQ(encoder["items"], (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(encoder["tokens"], (std::vector<int>{10, 20, 30, 40}));
  EXPECT_EQ(encoder["predicted"], (std::vector<double>{100, 100, 100, 100}));
  EXPECT_EQ(encoder["compute"], (std::vector<double>{0.1, 0.1, 0.1, 0.9}));
  EXPECT_EQ(encoder["communication"], (std::vector<double>{0.85, 0.85, 0.85, 0.05}));
  EXPECT_EQ(encoder["waiting"], (std::vector<double>{0.8, 0.8, 0.8, 0}));
  EXPECT_EQ(encoder["sent"], (std::vector<int>{5, 6, 7, 8}));
  EXPECT_EQ(json["components"]["backbone"]["samples"], (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(json["components"]["backbone"]["sent_predicted"], (std::vector<int>{8, 8, 8, -1}));
  EXPECT_EQ(json["sent"], (std::vector<int>{1, 1, 1, 1}));
  ASSERT_EQ(json["waits"].size(), 3u);
  EXPECT_EQ(json["waits"][0]["for"], 3);
  EXPECT_EQ(json["waits"][0]["component"], "encoders.image");
  EXPECT_NEAR(json["waits"][0]["seconds"].get<double>(), 0.8, 1e-9);
  EXPECT_EQ(nlohmann::json::parse(ranks_json(7, {}, table, {}))["components"]["backbone"].count("sent_predicted"), 0u);
}

TEST(RankFiles, ReadBackAsMeansOfTheLastLines) {
  TempFolder folder;
  std::string text;
  for (const double n : {9.0, 1.0, 3.0}) {
    const RankTable table = slow_rank_3(n);
    text += ranks_json(static_cast<int64_t>(n), even_loads(), table, waits_of(table, world_of(4))) + "\n";
  }
  const std::string path = folder.write("ranks.jsonl", text + "{\"step\":4,\"seconds\":[1,1],\"compon");
  const MeanRanks ranks = mean_ranks(path, 2);
  EXPECT_EQ(ranks.lines, 2);
  ASSERT_EQ(ranks.components.size(), 2u);
  const ComponentRanks& encoder = ranks.components[1];
  EXPECT_EQ(encoder.component, "encoders.image");
  EXPECT_NEAR(encoder.compute[3], 1.8, 1e-9);
  EXPECT_NEAR(encoder.items[3], 4, 1e-9);
  ASSERT_EQ(ranks.waits.size(), 3u);
  EXPECT_EQ(ranks.waits[0].behind, 3);
  EXPECT_EQ(ranks.waits[0].part, "encoders.image");
  EXPECT_NEAR(ranks.waits[0].seconds, 1.6, 1e-9);
  EXPECT_EQ(mean_ranks(path, 100).lines, 3);
  EXPECT_EQ(mean_ranks(folder / "none", 2).lines, 0);
  for (const char* broken :
       {"{}\n", "7\n", "{\"seconds\":3}\n", "{\"seconds\":[\"a\"],\"components\":4,\"waits\":[1,{}]}\n"})
    EXPECT_LE(mean_ranks(folder.write("broken", broken), 2).lines, 1) << broken;
}

TEST(RankFiles, BytesOfTheLastForecast) {
  TempFolder folder;
  const RankTable table = slow_rank_3(1);
  const WireForecast forecast{{"backbone", {8, 8, 8, -1}}, {"encoders.image", {5, 6, 7, -1}}, {"", {1, 1, 1, -1}}};
  const std::string path =
      folder.write("ranks.jsonl", ranks_json(1, {}, table, {}, forecast) + "\n" + ranks_json(2, {}, table, {}) + "\n");
  const WireCheck check = wire_check(path);
  EXPECT_EQ(check.step, 1);
  EXPECT_EQ(check.predicted, forecast);
  EXPECT_EQ(check.sent.at("encoders.image"), (std::vector<int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(wire_check(folder.write("without", ranks_json(2, {}, table, {}) + "\n")).step, 0);
  EXPECT_EQ(wire_check(folder / "none").step, 0);
}

TEST(RankFiles, LongRunsOfManyRanksWriteFewerLines) {
  EXPECT_EQ(ranks_interval(2000, 4, 3), 1);
  const int64_t every = ranks_interval(100'000, 256, 3);
  EXPECT_GT(every, 50);
  EXPECT_LT(every, 1000);
}

TEST(RankFiles, ATimelineComesBack) {
  TempFolder folder;
  const RankTimeline rows = two_rows();
  const std::string path = folder.write("timeline.json", timeline_json(12, rows));
  const std::optional<ReadTimeline> read = read_timeline(path);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->step, 12);
  ASSERT_EQ(read->timeline.ranks.size(), 2u);
  ASSERT_EQ(read->timeline.ranks[0].size(), rows.ranks[0].size());
  for (size_t i = 0; i < read->timeline.ranks[0].size(); ++i) {
    const StepBar &got = read->timeline.ranks[0][i], &wanted = rows.ranks[0][i];
    EXPECT_EQ(got.action, wanted.action);
    EXPECT_EQ(got.component, wanted.component);
    EXPECT_EQ(got.communication, wanted.communication);
    EXPECT_NEAR(got.end, wanted.end, 1e-6);
  }
  for (const char* broken :
       {"", "[]", "{\"ranks\":3}", "{\"step\":1,\"ranks\":[[{\"begin\":\"a\"}]]}", "{\"step\":1,\"ra"})
    EXPECT_FALSE(read_timeline(folder.write("broken", broken)).has_value()) << broken;
  EXPECT_FALSE(read_timeline(folder / "none").has_value());
}

TEST(RankLog, OneLineForAWholeRun) {
  WaitTotals totals;
  EXPECT_TRUE(totals.empty());
  const RankTable table = slow_rank_3(1);
  totals.add(table, waits_of(table, world_of(4)));
  EXPECT_EQ(totals.line(), "waiting 30 % · most for rank 3's encoders.image");
  RankTable still = table;
  still.phases.clear();
  WaitTotals none;
  none.add(still, waits_of(still, world_of(4)));
  EXPECT_EQ(none.line(), "waiting 0 %");
}

TEST(RankLog, NumbersOfAStepAndItsLine) {
  TempFolder folder;
  const WorldLayout layout = world_of(4);
  StepPlan plan;
  plan.layout = layout;
  {
    RankLog log(folder.path(), layout, 10, 2);
    for (int64_t step = 1; step <= 2; ++step) {
      MetricsLine line{step, {}};
      log.step_done(plan, slow_rank_3(1), line);
      EXPECT_NEAR(line.number("imbalance_measured/encoders.image", 0), 0.9 / 0.3, 1e-9);
      EXPECT_NEAR(line.number("imbalance_measured/backbone", 0), 1, 1e-9);
      EXPECT_NEAR(line.number("critical_path", 0), 1.4, 1e-9);
      EXPECT_NEAR(line.number("wait/encoders.image", 0), 0.8, 1e-9);
      EXPECT_NEAR(line.number("wait_share", 0), 0.3, 1e-9);
    }
  }
  EXPECT_EQ(mean_ranks(folder / "ranks.jsonl", 10).lines, 2);
  RankLog alone(folder.path(), world_of(1), 10, 2);  // goes on with one rank from step 1
  alone.truncate_after(1);
  EXPECT_EQ(mean_ranks(folder / "ranks.jsonl", 10).lines, 1);
}

}  // namespace
}  // namespace loom::test
