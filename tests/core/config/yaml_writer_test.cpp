// Writing: what is written reads back equal, for hand-picked and for random trees.
#include "core/config/yaml_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/config/yaml_reader.h"

namespace loom {
namespace {

ConfigValue round_trip(const ConfigValue& value) { return read_yaml_text(write_yaml(value), "written"); }

TEST(YamlWriter, Shape) {
  ConfigValue root = ConfigValue::map();
  root.set("name", ConfigValue::string("demo"));
  root.set("empty", ConfigValue::map());
  root.set("none", ConfigValue());
  root.set("ids", ConfigValue::list({ConfigValue::integer(1), ConfigValue::number(2)}));
  ConfigValue source = ConfigValue::map({{"path", ConfigValue::string("a b.txt")}, {"lr", ConfigValue::number(1e-5)}});
  source.set("deep", ConfigValue::map({{"x", ConfigValue::boolean(false)}}));
  root.set("data", ConfigValue::list({source, ConfigValue::list({ConfigValue::list(), source})}));
  EXPECT_EQ(write_yaml(root),
            "name: demo\n"
            "empty: {}\n"
            "none: null\n"
            "ids: [1, 2.0]\n"
            "data:\n"
            "  - path: a b.txt\n"
            "    lr: 1e-05\n"
            "    deep:\n"
            "      x: false\n"
            "  -\n"
            "    - []\n"
            "    - path: a b.txt\n"
            "      lr: 1e-05\n"
            "      deep:\n"
            "        x: false\n");
  EXPECT_TRUE(round_trip(root) == root);
}

TEST(YamlWriter, StringsThatLookLikeSomethingElse) {
  const char* const texts[] = {"",
                               "true",
                               "null",
                               "~",
                               "12",
                               "1e-5",
                               ".5",
                               ".inf",
                               "yes",
                               "007",
                               "a: b",
                               "a #b",
                               "#x",
                               "- a",
                               "-1",
                               "-a",
                               "*.q",
                               "&a",
                               "!x",
                               "%x",
                               "@x",
                               "`x",
                               "'",
                               "\"",
                               "it's",
                               "a\"b",
                               "\\",
                               "a\\nb",
                               "a\nb",
                               "\n",
                               " lead",
                               "trail ",
                               "\ttab",
                               "a\tb",
                               "[1]",
                               "{a}",
                               "a, b",
                               "---",
                               "...",
                               "..",
                               "? a",
                               "<<",
                               "${HOME}",
                               "$${X}",
                               "$$",
                               "${",
                               "$$${",
                               "a.b",
                               ".",
                               "/x/y.gz",
                               "a=b",
                               "x:",
                               ":x",
                               "|",
                               ">",
                               "0x1f",
                               "caf\xc3\xa9",
                               "\x01\x7f\x1b",
                               "\xc2\x85",
                               "\xe2\x80\xa8",
                               "\xef\xbb\xbfx",
                               "\r\n",
                               "a\rb",
                               "64 samples",
                               "null ",
                               "http://h/p?q=1"};
  for (const char* text : texts) {
    ConfigValue root = ConfigValue::map({{"k", ConfigValue::string(text)}});
    if (*text != '\0') root.set(text, ConfigValue::list({ConfigValue::string(text), ConfigValue::string("x")}));
    ConfigValue back = round_trip(root);
    EXPECT_TRUE(back == root) << "'" << text << "' was written as\n"
                              << write_yaml(root) << "and read as\n"
                              << write_yaml(back);
  }
}

TEST(YamlWriter, NumbersToTheLastBit) {
  Philox random({.seed = 5});
  ConfigValue list = ConfigValue::list();
  std::vector<double> values = {0.0, -0.0, 1.0, -3.0, 1e20, 1e-300, 5e-324, 1.7976931348623157e308, 0.1, 123456789.0};
  for (uint64_t i = 0; i < 2000; ++i) {
    std::array<uint32_t, 4> words = random.block(i);
    double value = 0;
    std::memcpy(&value, words.data(), sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (double value : values) list.items().push_back(ConfigValue::number(value));
  ConfigValue back = round_trip(list);
  ASSERT_EQ(back.items().size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(back.items()[i].kind(), ConfigValue::Kind::number) << values[i];
    double read = back.items()[i].as_number();
    ASSERT_EQ(std::memcmp(&read, &values[i], sizeof read), 0) << values[i];
  }
  ConfigValue odd =
      ConfigValue::list({ConfigValue::number(INFINITY), ConfigValue::number(-INFINITY), ConfigValue::number(NAN),
                         ConfigValue::integer(INT64_MIN), ConfigValue::integer(INT64_MAX)});
  EXPECT_TRUE(round_trip(odd) == odd);
}

// Draws one number after the other.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .purpose = Purpose::sample}) {}
  uint64_t below(uint64_t bound) { return random_.below(bound, next_++); }

 private:
  Philox random_;
  uint64_t next_ = 0;
};

std::string random_text(Dice& dice) {
  static const char* const pieces[] = {"a",    "b",  "0",    "1",  ".",  "-",        ":",
                                       " ",    "#",  "'",    "\"", "\\", "\n",       "\t",
                                       ",",    "[",  "]",    "{",  "}",  "$",        "${",
                                       "&",    "*",  "!",    "|",  ">",  "%",        "@",
                                       "=",    "e",  "true", "~",  "_",  "\xc3\xa9", "\xf0\x9f\x90\x88",
                                       "\x02", "<<", "?",    "+",  "x",  "`",        "\xe2\x80\xa9",
                                       "\r"};
  std::string text;
  for (uint64_t n = dice.below(7); n > 0; --n) text += pieces[dice.below(std::size(pieces))];
  return text;
}

ConfigValue random_tree(Dice& dice, int depth) {
  switch (dice.below(depth > 0 ? 9 : 6)) {
    case 0:
      return ConfigValue();
    case 1:
      return ConfigValue::boolean(dice.below(2) == 1);
    case 2:
      return ConfigValue::integer(static_cast<int64_t>(dice.below(2000)) - 1000);
    case 3:
      return ConfigValue::number((static_cast<double>(dice.below(2000)) - 1000) / 64);
    case 4:
    case 5:
      return ConfigValue::string(random_text(dice));
    case 6: {
      ConfigValue list = ConfigValue::list();
      for (uint64_t n = dice.below(5); n > 0; --n) list.items().push_back(random_tree(dice, depth - 1));
      return list;
    }
    default: {
      ConfigValue map = ConfigValue::map();
      for (uint64_t n = dice.below(5); n > 0; --n) map.set(random_text(dice), random_tree(dice, depth - 1));
      return map;
    }
  }
}

TEST(YamlWriter, RandomTreesReadBackEqualAndWriteTheSameAgain) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Dice dice(seed);
    ConfigValue tree = ConfigValue::map({{"root", random_tree(dice, 4)}});
    std::string text = write_yaml(tree);
    ConfigValue back;
    ASSERT_NO_THROW(back = read_yaml_text(text, "written")) << "seed " << seed << "\n" << text;
    ASSERT_TRUE(back == tree) << "seed " << seed << "\n" << text << "----\n" << write_yaml(back);
    ASSERT_EQ(write_yaml(back), text) << "seed " << seed;
  }
}

}  // namespace
}  // namespace loom
