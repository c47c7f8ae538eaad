// One rank of four has a heavy encoder item, and items may not move: its processor time, the waits of the others and
// the timeline must say so. Every step also goes through what ranks send each other about it.
#include "core/train/rank_waits.h"

#include <gtest/gtest.h>

#include <ctime>
#include <mutex>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "core/train/rank_timeline.h"
#include "core/train/trainer.h"
#include "tests/loopback/harness.h"
#include "tests/loopback/zoo/pooled_encoder.h"

namespace loom::test {
namespace {

constexpr int kWorld = 4, kHeavy = 3;
constexpr double kBurn = 0.15;  // seconds of processor time: far more than all the rest of a step

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Burning : public PooledEncoder {
 public:
  explicit Burning(const Declarer& d) : PooledEncoder(d, {}, Pool::mean) {}
  void run(int unit, Streams& s, UnitContext& ctx) override {
    const double begin = processor_seconds();
    while (unit == 1 && processor_seconds() - begin < kBurn) {
    }
    PooledEncoder::run(unit, s, ctx);
  }
};

ModelSpec burning_model() {
  ModelSpec spec;
  spec.name = "burning";
  spec.encoders = {{}};
  spec.encoders.front().custom = [](const Declarer& d) { return std::make_shared<Burning>(d); };
  return spec;
}

// Four samples that fill a lane each; the last one, on rank 3, has the only item.
LoadedStep one_heavy_rank(const WorldLayout& layout) {
  LoadedStep out;
  std::vector<Verdict> verdicts;
  for (uint64_t i = 0; i < kWorld; ++i) {
    PreparedSample& sample = out.samples.emplace_back();
    Verdict& verdict = sample.verdict;
    verdict.sample = verdict.position = i;
    verdict.tokens = 10;
    sample.tokens.assign(10, 3);
    sample.supervised.assign(10, 1);
    if (i == kHeavy) {
      verdict.items = {{"image", {6, 1, 36, {}}, 2, 1}};
      sample.supervised[2] = 0;
      sample.media = {at::ones({6, kZooMedia}, at::kFloat)};
    }
    verdict.supervised = i == kHeavy ? 8 : 9;
    verdicts.push_back(verdict);
  }
  out.plan = make_step_plan(1, std::move(verdicts), 12, 0, layout);
  return out;
}

struct Told {
  std::optional<RankTable> table;
  RankTimeline timeline;
};

std::vector<Told> step_of(const WorldLayout& layout) {
  std::vector<Told> out(static_cast<size_t>(layout.world));
  run_loopback(layout.world, {60, 1, 0}, [&](Communicator& comm) {
    const auto model = make_model(burning_model(), {}, layout, &comm);
    OptimizerConfig config;
    config.kind = "sgd";
    const auto optimizer = make_optimizer(config, model->buffers());
    Trainer trainer(*model, *optimizer, {});
    StepClock clock(*model);
    RankGather gather(comm, {"encoders.image", "connectors.image", "backbone"});
    const LoadedStep step = one_heavy_rank(layout);
    for (int again = 0; again < 2; ++again) {  // the first one is slow in other ways, too
      comm.barrier("test: begin", world_group(comm.world()));
      clock.begin_step();
      gather.begin_step();
      const StepStats stats = trainer.step(step);
      LOOM_CHECK(stats.updated, "nothing was trained");
      Told& told = out[static_cast<size_t>(comm.rank())];
      told.table = gather.gather(clock.end_step(), step.plan);
      told.timeline = gather_timeline(comm, clock);
    }
  });
  return out;
}

WorldLayout layout_of(int shard) {
  WorldLayout out;
  out.world = kWorld;
  out.balance.move = out.balance.split = out.balance.pack = false;
  out.encoders["image"].shard = out.connectors["image"].shard = out.backbone.shard = shard;
  return out;
}

TEST(RankWaits, AHeavyEncoderOfOneRankIsNamed) {
  for (const int shard : {0, 1}) {  // they meet in the encoder's weights, or not before the bridge
    const WorldLayout layout = layout_of(shard);
    const std::vector<Told> told = step_of(layout);
    for (int rank = 1; rank < kWorld; ++rank) EXPECT_FALSE(told[static_cast<size_t>(rank)].table.has_value());
    ASSERT_TRUE(told[0].table.has_value()) << "all ranks have the same phases";
    const RankTable& table = *told[0].table;
    ASSERT_EQ(table.world(), kWorld);
    const std::vector<double> encoder = table.compute_by_component().at("encoders.image");
    for (int rank = 0; rank < kHeavy; ++rank) {
      EXPECT_LT(3 * encoder[static_cast<size_t>(rank)], encoder[kHeavy]) << "rank " << rank << ", shard " << shard;
      EXPECT_LT(2 * table.compute[static_cast<size_t>(rank)], table.compute[kHeavy]);
    }
    EXPECT_GE(encoder[kHeavy], 0.9 * kBurn);
    EXPECT_GT(measured_imbalance(table).at("encoders.image"), 2.5);
    const RankWaits waits = waits_of(table, layout);
    ASSERT_FALSE(waits.waits.empty());
    std::map<std::pair<int, std::string>, double> behind;
    for (const RankWait& wait : waits.waits) behind[{wait.behind, wait.part}] += wait.seconds;
    const auto most =
        std::max_element(behind.begin(), behind.end(), [](auto& a, auto& b) { return a.second < b.second; });
    EXPECT_EQ(most->first.first, kHeavy) << "shard " << shard;
    EXPECT_EQ(most->first.second, "encoders.image") << "shard " << shard;
    for (int rank = 0; rank < kHeavy; ++rank)
      EXPECT_GT(waits.by_part.at("encoders.image")[static_cast<size_t>(rank)], 0.5 * kBurn) << rank;
  }
}

TEST(RankWaits, BytesAreThoseOfTheCommunicators) {
  const RankTable table = *step_of(layout_of(0))[0].table;
  ASSERT_EQ(table.sent.size(), 4u);
  for (const auto& [component, bytes] : table.sent) {
    ASSERT_EQ(bytes.size(), static_cast<size_t>(kWorld)) << component;
    for (const int64_t sent : bytes) EXPECT_GT(sent, 0) << component;
  }
}

TEST(RankTimeline, EveryRankHasItsBarsOnOneAxis) {
  const RankTimeline timeline = step_of(layout_of(0))[0].timeline;
  ASSERT_EQ(timeline.ranks.size(), static_cast<size_t>(kWorld));
  double first = 1e9;
  for (const std::vector<StepBar>& bars : timeline.ranks) {
    ASSERT_FALSE(bars.empty());
    double before = 0;
    int forward = 0, backward = 0;
    for (const StepBar& bar : bars) {
      EXPECT_LE(bar.begin, bar.end);
      first = std::min(first, bar.begin);
      if (bar.communication) continue;
      EXPECT_GE(bar.begin, before) << "phases do not overlap";
      before = bar.end;
      forward += bar.component == "backbone" && bar.action == StepAction::forward;
      backward += bar.component == "backbone" && bar.action == StepAction::backward;
    }
    EXPECT_EQ(forward, 1);
    EXPECT_EQ(backward, 1);
  }
  EXPECT_GE(first, 0);
  const auto longest = [&](int rank, bool communication) {
    double most = 0;
    for (const StepBar& bar : timeline.ranks[static_cast<size_t>(rank)]) {
      if (bar.communication == communication) most = std::max(most, bar.end - bar.begin);
    }
    return most;
  };
  for (int rank = 0; rank < kHeavy; ++rank)
    EXPECT_GT(longest(rank, true), 0.5 * kBurn) << "what a rank waits is one bar of communication";
}

TEST(RankTable, OneRankHasATableOfItsOwn) {
  WorldLayout alone_layout;
  const std::vector<Told> told = step_of(alone_layout);
  ASSERT_TRUE(told[0].table.has_value());
  EXPECT_EQ(told[0].table->world(), 1);
  EXPECT_TRUE(waits_of(*told[0].table, alone_layout).waits.empty());
  EXPECT_EQ(told[0].timeline.ranks.size(), 1u);
}

}  // namespace
}  // namespace loom::test
