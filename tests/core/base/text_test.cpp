// Words and numbers of core/base/text.h.
#include "core/base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/base/random.h"

namespace loom {
namespace {

TEST(Text, EditDistanceCountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kv_head", "kv_heads"), 1u);
  EXPECT_EQ(edit_distance("widht", "width"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("KV-Heads", "kv_heads"), 0u);
}

TEST(Text, EditDistanceIsSymmetric) {
  Philox random({.seed = 3});
  for (uint64_t round = 0; round < 200; ++round) {
    std::string a, b;
    for (uint64_t i = 0; i < random.below(8, 100 * round); ++i)
      a += static_cast<char>('a' + random.below(3, 100 * round + i + 1));
    for (uint64_t i = 0; i < random.below(8, 100 * round + 50); ++i)
      b += static_cast<char>('a' + random.below(3, 100 * round + i + 51));
    EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
    EXPECT_EQ(edit_distance(a, a), 0u);
  }
}

TEST(Text, NearestNamesWhatWasMeant) {
  std::vector<std::string> names = {"width", "depth", "heads", "kv_heads", "ffn"};
  EXPECT_EQ(nearest("kv_head", names), "kv_heads");
  EXPECT_EQ(nearest("widht", names), "width");
  EXPECT_EQ(nearest("KV-HEADS", names), "kv_heads");
  EXPECT_EQ(nearest("vitt", {"vit", "audio"}), "vit");
  EXPECT_EQ(nearest("entirely_else", names), std::nullopt);
  EXPECT_EQ(nearest("", names), std::nullopt);
  EXPECT_EQ(nearest("x", {}), std::nullopt);
  EXPECT_EQ(nearest("lx", {"lr"}), "lr");
  EXPECT_EQ(nearest("xr", {"lr"}), std::nullopt);
  EXPECT_EQ(did_you_mean("kv_head", names), "; did you mean 'kv_heads'?");
  EXPECT_EQ(did_you_mean("entirely_else", names), "");
}

TEST(Text, JoinSplitTrim) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a", "b"}, ", "), "a, b");
  EXPECT_EQ(split("a.b.c", '.'), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(split("a..", '.'), (std::vector<std::string>{"a", "", ""}));
  EXPECT_EQ(split("", '.'), (std::vector<std::string>{""}));
  EXPECT_EQ(trim(" \t a b \n"), "a b");
  EXPECT_EQ(trim("  "), "");
  EXPECT_EQ(quote_text("a\nb"), "'a\\nb'");
  EXPECT_EQ(quote_text(std::string(100, 'x')), "'" + std::string(57, 'x') + "...'");
  EXPECT_EQ(quote_text(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  EXPECT_EQ(quote_text("caf\xe9 \xc3\xa9\x1b[0m\xc3"), "'caf? \xc3\xa9?[0m?'");
  EXPECT_EQ(quote_text(std::string(100, '\x80')), "'" + std::string(57, '?') + "...'");
}

TEST(Text, GlobStarCrossesDots) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*", "a.b"));
  EXPECT_TRUE(glob_match("*.q_proj", "blocks.0.attention.q_proj"));
  EXPECT_FALSE(glob_match("*.q_proj", "q_proj"));
  EXPECT_FALSE(glob_match("*.q_proj", "blocks.0.q_proj.weight"));
  EXPECT_TRUE(glob_match("a*b*c", "aXbXbXc"));
  EXPECT_FALSE(glob_match("a*b*c", "aXbXb"));
  EXPECT_TRUE(glob_match("block?.norm", "block3.norm"));
  EXPECT_FALSE(glob_match("block?.norm", "block.norm"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("norm", "norm.weight"));
}

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(60000), "60,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(999.6), "1.0K");
  EXPECT_EQ(human_count(1234567), "1.2M");
  EXPECT_EQ(human_count(999950), "1.0M");
  EXPECT_EQ(human_count(7.1e9), "7.1B");
  EXPECT_EQ(human_count(-1500), "-1.5K");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1.9e9), "1.9 GB");
  EXPECT_EQ(human_duration(91), "1:31");
  EXPECT_EQ(human_duration(0.4), "0:00");
  EXPECT_EQ(human_duration(3599.7), "1:00:00");
  EXPECT_EQ(human_duration(7384), "2:03:04");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(human_duration(std::nan("")), "?");
}

TEST(Text, ShortestDoubleReadsBackToTheSameBits) {
  EXPECT_EQ(shortest_double(0.1), "0.1");
  EXPECT_EQ(shortest_double(2e-3), "0.002");
  EXPECT_EQ(shortest_double(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(shortest_double(-std::nan("")), "nan");
  Philox random({.seed = 1});
  for (uint64_t i = 0; i < 20000; ++i) {
    std::array<uint32_t, 4> words = random.block(i);
    double value = 0;
    std::memcpy(&value, words.data(), sizeof value);
    if (!std::isfinite(value)) continue;
    double back = std::strtod(shortest_double(value).c_str(), nullptr);
    ASSERT_EQ(std::memcmp(&back, &value, sizeof value), 0) << shortest_double(value);
  }
}

TEST(Text, Utf8) {
  EXPECT_TRUE(valid_utf8("plain"));
  EXPECT_TRUE(valid_utf8("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x90\x88"));
  EXPECT_FALSE(valid_utf8("caf\xe9"));
  EXPECT_FALSE(valid_utf8("\xc3"));
  EXPECT_FALSE(valid_utf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(valid_utf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(valid_utf8("\xf4\x90\x80\x80"));  // beyond the last code point
  EXPECT_EQ(utf8_columns("caf\xc3\xa9"), 4u);
  EXPECT_EQ(utf8_cut("caf\xc3\xa9s", 4), "caf\xc3\xa9");
  EXPECT_EQ(utf8_cut("abc", 9), "abc");
  EXPECT_EQ(utf8_cut("abc", 0), "");
}

}  // namespace
}  // namespace loom
