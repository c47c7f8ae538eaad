// What an unquoted word means, and what ${...} becomes.
#include "core/config/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace loom {
namespace {

using Kind = ConfigValue::Kind;

TEST(Scalar, Kinds) {
  struct Case {
    const char* text;
    Kind kind;
  };
  const Case cases[] = {
      {"", Kind::null},
      {"~", Kind::null},
      {"null", Kind::null},
      {"nil", Kind::string},
      {"true", Kind::boolean},
      {"False", Kind::boolean},
      {"yes", Kind::string},
      {"no", Kind::string},
      {"on", Kind::string},
      {"off", Kind::string},
      {"y", Kind::string},
      {"tRue", Kind::string},
      {"0", Kind::integer},
      {"-3", Kind::integer},
      {"+3", Kind::integer},
      {"1_000", Kind::integer},
      {"0x1f", Kind::integer},
      {"0o17", Kind::integer},
      {"007", Kind::string},
      {"0_1", Kind::string},
      {"1__0", Kind::string},
      {"_1", Kind::string},
      {"1_", Kind::string},
      {"0x", Kind::string},
      {"0x-1", Kind::string},
      {"0xfg", Kind::string},
      {"-", Kind::string},
      {"+", Kind::string},
      {".", Kind::string},
      {"1.5", Kind::number},
      {".5", Kind::number},
      {"5.", Kind::number},
      {"1e-5", Kind::number},
      {"1E5", Kind::number},
      {"-1.0e+5", Kind::number},
      {"1e", Kind::string},
      {"e5", Kind::string},
      {"1.2.3", Kind::string},
      {"1:30", Kind::string},
      {"-.inf", Kind::number},
      {".nan", Kind::number},
      {"inf", Kind::string},
      {"nan", Kind::string},
      {"-.nan", Kind::string},
      {"64 samples", Kind::string},
      {" 1", Kind::string},
      {"--1", Kind::string},
      {"00", Kind::string},
      {"9223372036854775807", Kind::integer},
      {"9223372036854775808", Kind::number},
  };
  for (const Case& c : cases) EXPECT_EQ(resolve_scalar(c.text).kind(), c.kind) << "'" << c.text << "'";
}

TEST(Scalar, Values) {
  EXPECT_EQ(resolve_scalar("1_000").as_int(), 1000);
  EXPECT_EQ(resolve_scalar("-0x1F").as_int(), -31);
  EXPECT_EQ(resolve_scalar("0o17").as_int(), 15);
  EXPECT_EQ(resolve_scalar("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(resolve_scalar("1e-5").as_number(), 1e-5);
  EXPECT_EQ(resolve_scalar("+.5").as_number(), 0.5);
  EXPECT_EQ(resolve_scalar("1_0.2_5").as_number(), 10.25);
  EXPECT_EQ(resolve_scalar("1e999").as_number(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(resolve_scalar("1e-999").as_number(), 0.0);
  EXPECT_EQ(resolve_scalar("-.inf").as_number(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(resolve_scalar(".nan").as_number()));
  EXPECT_TRUE(resolve_scalar("TRUE").as_bool());
  EXPECT_EQ(resolve_scalar("2e-3").text(), "2e-3");
}

class InterpolateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("LOOM_TEST_SET", "there", 1);
    ::setenv("LOOM_TEST_EMPTY", "", 1);
    ::unsetenv("LOOM_TEST_UNSET");
  }
  void TearDown() override {
    ::unsetenv("LOOM_TEST_SET");
    ::unsetenv("LOOM_TEST_EMPTY");
  }
  std::string run(const std::string& text) {
    problems_.clear();
    return interpolate(text, problems_).text;
  }
  std::vector<std::string> problems_;
};

TEST_F(InterpolateTest, Replaces) {
  EXPECT_EQ(run("a ${LOOM_TEST_SET}/b"), "a there/b");
  EXPECT_EQ(run("${LOOM_TEST_SET,default}"), "there");
  EXPECT_EQ(run("${LOOM_TEST_UNSET,/usr/share, really}/x"), "/usr/share, really/x");
  EXPECT_EQ(run("${LOOM_TEST_UNSET,}"), "");
  EXPECT_EQ(run("${LOOM_TEST_EMPTY,default}"), "");
  EXPECT_EQ(run("${LOOM_TEST_UNSET,${LOOM_TEST_SET}!}"), "there!");
  EXPECT_EQ(run("${ LOOM_TEST_SET }"), "there");
  EXPECT_EQ(run("$${LOOM_TEST_SET} $5 {x}"), "${LOOM_TEST_SET} $5 {x}");
  EXPECT_EQ(run("$$${"), "$${");
  EXPECT_TRUE(problems_.empty());
}

TEST_F(InterpolateTest, KnowsWhetherItIsTheWholeText) {
  EXPECT_TRUE(interpolate("${LOOM_TEST_SET}", problems_).whole);
  EXPECT_FALSE(interpolate("${LOOM_TEST_SET}x", problems_).whole);
  EXPECT_FALSE(interpolate("${LOOM_TEST_SET}${LOOM_TEST_SET}", problems_).whole);
  EXPECT_FALSE(interpolate("plain", problems_).whole);
}

TEST_F(InterpolateTest, SaysWhatIsWrong) {
  run("${LOOM_TEST_UNSET}");
  EXPECT_EQ(problems_,
            std::vector<std::string>{"environment variable LOOM_TEST_UNSET is not set; set it or give a default, "
                                     "${LOOM_TEST_UNSET,default}"});
  run("${data.budget}");
  EXPECT_EQ(problems_, std::vector<std::string>{
                           "'${data.budget}' names no environment variable; expected ${VAR} or ${VAR,default}"});
  run("${}");
  EXPECT_EQ(problems_.size(), 1u);
  run("x ${LOOM");
  EXPECT_EQ(problems_, std::vector<std::string>{"'${' without its '}'"});
}

}  // namespace
}  // namespace loom
