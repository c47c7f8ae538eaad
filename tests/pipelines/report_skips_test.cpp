// Reasons of skips without what is special to one file.
#include "pipelines/report_skips.h"

#include <gtest/gtest.h>

namespace loom {
namespace {

TEST(ReportSkips, Kinds) {
  for (const auto& [reason, kind] : std::vector<std::pair<std::string, std::string>>{
           {"pics/a.png: cut off after 1,203 bytes", "cut off after N bytes"},
           {"door.jpg: no such file", "no such file"},
           {"5000 tokens; data.budget is 4096", "N tokens; data.budget is N"},
           {"train.0#12: is empty (0 bytes)", "is empty (N bytes)"},
           {"200x300 pixels are 1.5 times too many", "NxN pixels are N times too many"},
           {"role 'robot' is unknown; did you mean 'user'?", "role '…' is unknown; did you mean '…'?"},
           {"can't be decoded", "can't be decoded"},
           {"/data/x/y.webp", "without a reason"},
           {"", "without a reason"}})
    EXPECT_EQ(skip_kind(reason), kind) << reason;
}

TEST(ReportSkips, AreCountedTheMostFrequentFirst) {
  std::vector<SkipRecord> skips;
  for (int i = 0; i < 5; ++i) {
    SkipRecord skip;
    skip.name = "train.0#" + std::to_string(i);
    skip.reason = "p/" + std::to_string(i) + (i == 2 ? ".png: is empty" : ".png: cut off after " + std::to_string(i));
    skip.left_out = i == 4;
    skips.push_back(skip);
  }
  const std::vector<ReportSkip> kinds = skips_by_kind(skips);
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].kind, "cut off after N");
  EXPECT_EQ(kinds[0].count, 3);
  EXPECT_EQ(kinds[0].example, "train.0#0: p/0.png: cut off after 0");
  EXPECT_EQ(kinds[1].count + kinds[2].count, 2);
  EXPECT_TRUE(skips_by_kind({}).empty());
}

}  // namespace
}  // namespace loom
