// Metadata comes out as it went in, and bytes that end early are noticed.
#include "core/data/wire.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/error.h"
#include "tests/core/step/random_steps.h"

namespace loom {
namespace {

void expect_equal(const Verdict& a, const Verdict& b) {
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.sample, b.sample);
  EXPECT_EQ(a.name, b.name);
  EXPECT_TRUE(b.ok);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.supervised, b.supervised);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) {
    const ItemPlace &x = a.items[i], &y = b.items[i];
    EXPECT_EQ(x.modality, y.modality);
    EXPECT_EQ(x.meta.tokens, y.meta.tokens);
    EXPECT_EQ(x.meta.outputs, y.meta.outputs);
    EXPECT_EQ(x.meta.cost, y.meta.cost);
    EXPECT_EQ(x.meta.grid, y.meta.grid);
    EXPECT_EQ(x.begin, y.begin);
    EXPECT_EQ(x.slots, y.slots);
    EXPECT_EQ(x.cuts, y.cuts);
  }
}

TEST(Wire, ValuesOfEverySize) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> integers = {0, 1, -1, 63, -64, 64, 127, 128, -300, kMost, kLeast};
  ByteWriter out;
  for (const int64_t value : integers) out.integer(value);
  out.number(std::numeric_limits<uint64_t>::max());
  out.real(-0.1);
  out.text(std::string("a\0b", 3));
  out.text("");
  out.integers({5, 3, 3, -1000});
  out.integers({});
  const std::string bytes = out.take();
  ByteReader in(bytes);
  for (const int64_t value : integers) EXPECT_EQ(in.integer(), value);
  EXPECT_EQ(in.number(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(in.real(), -0.1);
  EXPECT_EQ(in.text(), std::string("a\0b", 3));
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.integers(), (std::vector<int64_t>{5, 3, 3, -1000}));
  EXPECT_TRUE(in.integers().empty());
  EXPECT_TRUE(in.done());
}

TEST(Wire, VerdictsComeOutAsTheyWentIn) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    test::Draws draws(seed);
    Verdict verdict = test::random_verdict(seed, 300, {"image", "sound"}, draws);
    for (ItemPlace& place : verdict.items) {
      place.meta.grid = {draws.below(9), draws.below(9)};
      if (draws.chance(0.3)) place.begin = -1;
    }
    ByteWriter out;
    write_verdict(verdict, out);
    const std::string bytes = out.take();
    ByteReader in(bytes);
    expect_equal(verdict, read_verdict(in));
    EXPECT_TRUE(in.done());
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 50) {
      ByteReader part(std::string_view(bytes).substr(0, size));
      EXPECT_THROW(read_verdict(part), CommError) << size << " of " << bytes.size();
    }
  }
}

TEST(Wire, ThousandsOfCutsCostAByteEach) {
  ByteWriter out;
  out.integers(test::count_up(1, 10001));
  EXPECT_LE(out.take().size(), 10003u);
}

}  // namespace
}  // namespace loom
