// The progress line: its text, its width, when it is drawn.
#include "core/observe/progress.h"

#include <cmath>

#include "core/base/log.h"
#include "core/base/text.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::slurp;
using test::TempFolder;

ProgressState full_state() {
  ProgressState state;
  state.step = 200;
  state.steps = 1800;
  state.loss = 0.4123;
  state.eval = 0.397;
  state.exact = 0.6131;
  state.tokens_per_second = 23100.4;
  state.data_fraction = 0.001;
  state.seconds_left = 91;
  return state;
}

TEST(Progress, TheLine) {
  EXPECT_EQ(progress_line(full_state(), 200),
            "step  200/1800  loss 0.412  eval 0.397  exact 61.3 %  23,100 tok/s  data 0 %  eta 1:31");
  ProgressState state = full_state();
  state.extra = {{"", "held-out"}, {"norm", "1.2"}};
  state.flops_per_second = 158.2e9;
  EXPECT_EQ(progress_line(state, 200),
            "step  200/1800  loss 0.412  eval 0.397  exact 61.3 %  23,100 tok/s  158 GFLOP/s  data 0 %  held-out  norm "
            "1.2  eta 1:31");
  state.extra.clear();
  state.peak_share = 0.638;
  EXPECT_EQ(
      progress_line(state, 200),
      "step  200/1800  loss 0.412  eval 0.397  exact 61.3 %  23,100 tok/s  158 GFLOP/s (64 %)  data 0 %  eta 1:31");
  ProgressState bare;
  bare.step = 3;
  EXPECT_EQ(progress_line(bare, 80), "step 3");
  bare.loss = std::nan("");
  bare.tokens_per_second = INFINITY;
  bare.seconds_left = -1;
  EXPECT_EQ(progress_line(bare, 80), "step 3  loss nan  ? tok/s  eta ?");
  bare = {};
  bare.loss = 1.25e-7;
  EXPECT_EQ(progress_line(bare, 80), "step 0  loss 1.25e-07");
  bare.loss = 0.012345;
  EXPECT_EQ(progress_line(bare, 80), "step 0  loss 0.01235");
}

TEST(Progress, FloatingPointOperations) {
  EXPECT_EQ(human_flops(2.345e9), "2.35 GFLOP/s");
  EXPECT_EQ(human_flops(24.8e9), "24.8 GFLOP/s");
  EXPECT_EQ(human_flops(999.4e9), "999 GFLOP/s");
  EXPECT_EQ(human_flops(999.6e9), "1.00 TFLOP/s");
  EXPECT_EQ(human_flops(3.1e6), "3.10 MFLOP/s");
  EXPECT_EQ(human_flops(std::nan("")), "? FLOP/s");
}

TEST(Progress, LeavesOutWhatMattersLeast) {
  EXPECT_EQ(progress_line(full_state(), 85),
            "step  200/1800  loss 0.412  eval 0.397  exact 61.3 %  23,100 tok/s  eta 1:31");
  EXPECT_EQ(progress_line(full_state(), 40), "step  200/1800  loss 0.412  eta 1:31");
  EXPECT_EQ(progress_line(full_state(), 20), "step  200/1800");
  EXPECT_EQ(progress_line(full_state(), 8), "step  20");
  EXPECT_EQ(progress_line(full_state(), 0), "");
  for (int width = 0; width < 120; ++width) {
    EXPECT_LE(utf8_columns(progress_line(full_state(), width)), static_cast<std::size_t>(width));
  }
}

class ProgressOutput : public ::testing::Test {
 protected:
  void SetUp() override { stream_ = std::fopen((folder_ / "out").c_str(), "w"); }
  void TearDown() override { std::fclose(stream_); }
  std::string text() const { return slurp(folder_ / "out"); }
  static ProgressState at(int64_t step, int64_t steps = 100) {
    ProgressState state;
    state.step = step;
    state.steps = steps;
    return state;
  }
  TempFolder folder_;
  std::FILE* stream_ = nullptr;
  double now_ = 0;
  std::function<double()> clock_ = [this] { return now_; };
};

TEST_F(ProgressOutput, LinesBySeconds) {
  Progress progress(stream_, {.every_seconds = 10}, clock_);
  for (int step = 1; step <= 30; ++step, now_ += 1) progress.update(at(step));
  EXPECT_EQ(text(), "step   1/100\nstep  11/100\nstep  21/100\n");
  progress.finish();
  EXPECT_EQ(text(), "step   1/100\nstep  11/100\nstep  21/100\nstep  30/100\n");
  progress.finish();
  EXPECT_EQ(text(), "step   1/100\nstep  11/100\nstep  21/100\nstep  30/100\n");
}

TEST_F(ProgressOutput, LinesByStepsAndTheLastOne) {
  {
    Progress progress(stream_, {.every_seconds = 0, .every_steps = 4}, clock_);
    for (int step = 1; step <= 10; ++step) progress.update(at(step, 10));
  }
  EXPECT_EQ(text(), "step  1/10\nstep  5/10\nstep  9/10\nstep 10/10\n");
}

TEST_F(ProgressOutput, ATerminalIsRedrawnInPlace) {
  Progress progress(stream_, {.terminal = true, .width = 30, .redraw_seconds = 0.5}, clock_);
  ProgressState state = at(1);
  state.seconds_left = 7200;
  progress.update(state);
  progress.update(at(2));  // too soon
  now_ = 1;
  progress.update(at(3));
  EXPECT_EQ(text(), "\rstep   1/100  eta 2:00:00\rstep   3/100             ");
  now_ = 1.1;
  progress.update(at(4));
  progress.finish();  // nothing is left untold
  EXPECT_EQ(text(), "\rstep   1/100  eta 2:00:00\rstep   3/100             \rstep   4/100\n");
}

TEST_F(ProgressOutput, ATerminalLineIsNarrowerThanTheTerminal) {
  Progress progress(stream_, {.terminal = true, .width = 12}, clock_);
  progress.update(at(1));
  EXPECT_EQ(text(), "\rstep   1/10");
}

TEST_F(ProgressOutput, LogLinesPushItAside) {
  Progress progress(stream_, {.terminal = true, .width = 40}, clock_);
  progress.update(at(1));
  ::testing::internal::CaptureStderr();
  log_info("saved");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "saved\n");
  EXPECT_EQ(text(), "\rstep   1/100\r            \r");
  progress.update(at(2));  // drawn again at once
  EXPECT_EQ(text(), "\rstep   1/100\r            \r\rstep   2/100");
}

TEST_F(ProgressOutput, NothingHappenedNothingIsPrinted) {
  {
    Progress progress(stream_, {.terminal = true, .width = 40}, clock_);
    progress.finish();
  }
  EXPECT_EQ(text(), "");
  EXPECT_FALSE(ProgressPolicy::detect(stream_).terminal);
}

}  // namespace
}  // namespace loom
