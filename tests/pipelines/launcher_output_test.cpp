// What is shown of several ranks: progress that steps aside, lines that stay whole, words of all said once.
#include "pipelines/launcher_output.h"

#include <gtest/gtest.h>

#include <string>

namespace loom {
namespace {

class Shown {
 public:
  explicit Shown(std::array<bool, 2> terminal)
      : output(3, terminal, [this](RankStream, std::string_view bytes) { text += bytes; }) {}
  std::string text;
  RankOutput output;
};

TEST(RankOutput, AProgressLineStepsAside) {
  Shown shown({true, true});
  shown.output.feed(0, RankStream::error, "\rstep 1/3");
  shown.output.feed(0, RankStream::error, "\rstep 2/3");
  shown.text.clear();
  shown.output.feed(2, RankStream::out, "hel");
  EXPECT_EQ(shown.text, "");
  shown.output.feed(2, RankStream::out, "lo\n");
  EXPECT_EQ(shown.text, "\r        \r[rank 2] hello\nstep 2/3");
  shown.text.clear();
  shown.output.feed(0, RankStream::error, "\r        \r");  // stepped aside by itself
  shown.output.say("launcher");
  EXPECT_EQ(shown.text, "\r        \rlauncher\n");
}

TEST(RankOutput, WithoutATerminalLinesStayWhole) {
  Shown shown({false, false});
  shown.output.feed(0, RankStream::error, "step 1");
  shown.output.feed(1, RankStream::error, "other\n");
  shown.output.feed(0, RankStream::error, "/3\n");
  EXPECT_EQ(shown.text, "[rank 1] other\nstep 1/3\n");
}

TEST(RankOutput, ARankThatRepeatsItselfIsHeard) {
  for (const bool terminal : {false, true}) {
    Shown shown({terminal, terminal});
    shown.output.feed(1, RankStream::error, "slow disk\n");
    shown.output.feed(0, RankStream::error, "slow disk\n");
    shown.output.feed(2, RankStream::error, "slow disk\nslow disk\n");
    shown.output.feed(0, RankStream::error, "slow disk\n");
    EXPECT_EQ(shown.text, "[rank 1] slow disk\n[rank 2] slow disk\n");
  }
}

}  // namespace
}  // namespace loom
