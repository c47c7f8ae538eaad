// The division of a source: a partition, of the asked size, that stays when samples are added.
#include "core/data/held_out.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::FakeSource;

std::set<std::string> names_of(const Source& source) {
  std::set<std::string> out;
  std::string last;
  for (int64_t i = 0; i < source.size(); ++i) out.insert(source.sample_name(i));
  EXPECT_EQ(static_cast<int64_t>(out.size()), source.size());
  return out;
}

DividedSource divided(int64_t size, double share) {
  return hold_out(std::make_shared<FakeSource>("train.0", size), share);
}

TEST(HoldOut, IsAPartitionThatKeepsKeysNamesAndOrder) {
  const FakeSource whole("train.0", 1000);
  const DividedSource parts = divided(1000, 0.1);
  EXPECT_EQ(parts.kept->size() + parts.held->size(), 1000);
  EXPECT_NEAR(static_cast<double>(parts.held->size()), 100, 30);
  std::set<std::string> all = names_of(*parts.kept);
  for (const std::string& name : names_of(*parts.held)) EXPECT_TRUE(all.insert(name).second) << name;
  EXPECT_EQ(all, names_of(whole));
  for (const Source* part : {parts.kept.get(), parts.held.get()}) {
    EXPECT_EQ(part->name(), "train.0");
    int64_t before = -1;
    for (int64_t i = 0; i < part->size(); ++i) {
      const RawSample sample = part->read(i);
      const int64_t original = std::stoll(sample.name.substr(8));
      EXPECT_EQ(sample.name, part->sample_name(i));
      EXPECT_EQ(sample.key, part->sample_key(i));
      EXPECT_EQ(sample.key, whole.sample_key(original));
      EXPECT_EQ(part->sample_identity(i), whole.sample_identity(original));
      EXPECT_GT(original, before);
      before = original;
    }
  }
}

TEST(HoldOut, StaysWhenSamplesAreAppendedAndGrowsWithTheShare) {
  const std::set<std::string> before = names_of(*divided(500, 0.1).held), after = names_of(*divided(800, 0.1).held),
                              larger = names_of(*divided(500, 0.3).held);
  for (const std::string& name : before) {
    EXPECT_TRUE(after.count(name) > 0) << name;
    EXPECT_TRUE(larger.count(name) > 0) << name;
  }
  for (const std::string& name : after)
    EXPECT_TRUE(before.count(name) > 0 || std::stoll(name.substr(8)) >= 500) << name;
  EXPECT_EQ(before, names_of(*divided(500, 0.1).held));
}

TEST(HoldOut, SmallSourcesKeepOneOnEachSide) {
  for (int64_t size = 2; size < 30; ++size) {
    for (const double share : {0.001, 0.5}) {
      const DividedSource parts = divided(size, share);
      EXPECT_GE(parts.held->size(), 1);
      EXPECT_GE(parts.kept->size(), 1);
      EXPECT_EQ(parts.held->size() + parts.kept->size(), size);
    }
  }
  EXPECT_EQ(divided(1, 0.5).held, nullptr);
  EXPECT_EQ(divided(1, 0.5).kept->size(), 1);
}

TEST(HoldOut, WeightsStay) {
  std::shared_ptr<FakeSource> source = std::make_shared<FakeSource>("train.0", 10);
  source->given_weight = 3;
  EXPECT_EQ(hold_out(source, 0.5).kept->weight(), 3);
}

}  // namespace
}  // namespace loom
