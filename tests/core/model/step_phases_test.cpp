// Phases and bars of made-up moments: mark n is n tenths of a second.
#include "core/model/step_phases.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace loom::test {
namespace {

double tenths(size_t begin, size_t end) { return 0.1 * (static_cast<double>(end) - static_cast<double>(begin)); }

// 0.1 s of data; two units of an encoder, with 0.2 s of communication inside and 0.1 s behind; a backbone, both ways.
void fill(PhaseLog& log) {
  log.restart();
  log.begin(StepAction::data, "", 0);
  log.end(1);
  log.begin(StepAction::forward, "encoders.image", 2);
  log.communicated(2, 3, 0);
  log.end(4);
  log.begin(StepAction::forward, "encoders.image", 5);
  log.communicated(5, 6, 0);
  log.end(8);
  log.communicated(8, 9, 0);
  log.begin(StepAction::forward, "backbone", 10);
  log.end(12);
  log.begin(StepAction::backward, "backbone", 12);
  log.end(16);
  log.begin(StepAction::update, "", 16);
  log.end(18);
}

TEST(StepPhases, ConsecutiveActionsOfOneComponentAndDirection) {
  PhaseLog log(false);
  fill(log);
  const std::vector<StepPhase> phases = log.phases(tenths);
  ASSERT_EQ(phases.size(), 5u);
  EXPECT_EQ(phases[0].action, StepAction::data);
  EXPECT_NEAR(phases[0].compute, 0.1, 1e-12);
  EXPECT_EQ(phases[1].component, "encoders.image");
  EXPECT_NEAR(phases[1].compute, 0.3, 1e-12);
  EXPECT_NEAR(phases[1].inside, 0.2, 1e-12);
  EXPECT_NEAR(phases[1].after, 0.1, 1e-12);
  EXPECT_EQ(phases[2].action, StepAction::forward);
  EXPECT_EQ(phases[3].action, StepAction::backward);
  EXPECT_NEAR(phases[3].compute, 0.4, 1e-12);
  EXPECT_EQ(phase_part(phases[3].action, phases[3].component), "backbone");
  EXPECT_EQ(phase_part(phases[4].action, phases[4].component), "optimizer");
  EXPECT_EQ(phase_part(phases[0].action, phases[0].component), "data");
  EXPECT_EQ(phase_part(StepAction::batch, ""), "data");
  EXPECT_NEAR(log.compute(phases), 0.3 + 0.2 + 0.4 + 0.2, 1e-12) << "waiting for data is no work";
}

TEST(StepPhases, BarsArePhasesAndTheCommunicationOverThem) {
  PhaseLog log(false);
  fill(log);
  const auto communication = [&](double resolution) {
    std::vector<std::pair<double, double>> out;
    for (const StepBar& bar : log.bars(tenths, resolution)) {
      if (bar.communication) out.emplace_back(bar.begin, bar.end);
    }
    return out;
  };
  const std::vector<StepBar> bars = log.bars(tenths, 0.01);
  ASSERT_EQ(bars.size(), 5u + 3);
  EXPECT_NEAR(bars[1].begin, 0.2, 1e-12);
  EXPECT_NEAR(bars[1].end, 0.8, 1e-12);
  EXPECT_FALSE(bars[1].communication);
  EXPECT_EQ(bars[5].component, "encoders.image");
  ASSERT_EQ(communication(0.01).size(), 3u);
  ASSERT_EQ(communication(0.25).size(), 1u) << "near ones are one";
  EXPECT_NEAR(communication(0.25)[0].first, 0.2, 1e-12);
  EXPECT_NEAR(communication(0.25)[0].second, 0.9, 1e-12);
  EXPECT_TRUE(communication(0.15).empty()) << "short ones are left out";
}

TEST(StepPhases, OnTheHostItIsTheThreadsOwnProcessorTime) {
  PhaseLog log(true);
  log.restart();
  const double before = log.processor();
  log.begin(StepAction::forward, "backbone", 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // costs no processor time
  while (log.processor() - before < 0.02) {
  }
  log.communicated(1, 2, 0.015);
  log.end(3);
  const StepPhase phase = log.phases(tenths).at(0);
  EXPECT_GE(phase.compute, 0.0049);
  EXPECT_LE(phase.compute, log.processor() - before - 0.015 + 1e-9);
  EXPECT_NEAR(phase.inside, 0.1, 1e-12);
  EXPECT_GE(log.compute({phase}), phase.compute);
  log.restart();
  EXPECT_TRUE(log.phases(tenths).empty());
  log.communicated(0, 1, 0);  // before anything: belongs to nothing
  EXPECT_TRUE(log.bars(tenths, 0).empty());
}

}  // namespace
}  // namespace loom::test
