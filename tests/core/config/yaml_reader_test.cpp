// Reading: positions, paths, and one line for each way in which a file can be wrong.
#include "core/config/yaml_reader.h"

#include <cstdlib>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;
using test::TempFolder;
using Lines = std::vector<std::string>;

ConfigValue read(const std::string& text) { return read_yaml_text(text, "r.yaml"); }

std::string error_of(const std::string& text) {
  return message_of<UserError>([&] { read(text); });
}

TEST(YamlReader, ValuesMarksAndPaths) {
  ConfigValue root = read(
      "name: demo   # comment\n"
      "model:\n"
      "  encoders: {image: {width: 96, patch: 7}}\n"
      "data:\n"
      "- path: a\n"
      "  weight: 1e-5\n"
      "- {path: \"b c\"}\n"
      "empty:\n"
      "quoted: '12'\n"
      "off: no\n");
  EXPECT_EQ(root.get_string("name"), "demo");
  const ConfigValue& patch = root.at("model").at("encoders").at("image").at("patch");
  EXPECT_EQ(patch.as_int(), 7);
  EXPECT_EQ(patch.path, "model.encoders.image.patch");
  EXPECT_EQ(patch.mark.str(), "r.yaml:3:40");
  EXPECT_EQ(patch.key_mark.str(), "r.yaml:3:33");
  const ConfigValue& weight = root.at("data").items()[0].at("weight");
  EXPECT_EQ(weight.as_number(), 1e-5);
  EXPECT_EQ(weight.path, "data.0.weight");
  EXPECT_EQ(weight.mark.str(), "r.yaml:6:11");
  EXPECT_EQ(root.at("data").items()[1].get_string("path"), "b c");
  EXPECT_EQ(root.at("data").items()[1].mark.str(), "r.yaml:7:3");
  EXPECT_TRUE(root.at("empty").is_null());
  EXPECT_EQ(root.at("empty").mark.str(), "r.yaml:8:1");
  EXPECT_EQ(root.get_string("quoted"), "12");
  EXPECT_EQ(root.get_string("off"), "no");
}

TEST(YamlReader, ColumnsCountCharactersAndLineEndsOfAnySystem) {
  ConfigValue root = read("\xef\xbb\xbf# \xc3\xa9\r\n\"\xc3\xa9\xc3\xa9\": {\xc3\xa9: 1, b: x}\r\n");
  EXPECT_EQ(root.at("\xc3\xa9\xc3\xa9").at("b").mark.str(), "r.yaml:2:17");
  EXPECT_EQ(root.at("\xc3\xa9\xc3\xa9").get_string("b"), "x");
}

TEST(YamlReader, TextInBlocks) {
  ConfigValue root = read("a: |\n  one\n  \ttabbed\nb: >-\n  x\n  y\nc: 'it''s'\nd: \"tab\\tx\"\n");
  EXPECT_EQ(root.get_string("a"), "one\n\ttabbed\n");
  EXPECT_EQ(root.get_string("b"), "x y");
  EXPECT_EQ(root.get_string("c"), "it's");
  EXPECT_EQ(root.get_string("d"), "tab\tx");
  EXPECT_EQ(read("a: {b: c 'd, e: it's}\n").at("a").text(), "{b: c 'd, e: it's}");  // quotes inside plain text
}

TEST(YamlReader, EmptyAndMissingFiles) {
  TempFolder folder;
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~\n"}) {
    std::string path = folder.write("recipe.yaml", text);
    EXPECT_EQ(message_of<UserError>([&] { read_yaml_file(path); }),
              path + ": the file is empty; a recipe starts with 'name:'");
  }
  EXPECT_EQ(message_of<UserError>([&] { read_yaml_file(folder / "no.yaml"); }), folder / "no.yaml: no such file");
  EXPECT_EQ(message_of<UserError>([&] { read_yaml_file(folder.path()); }),
            folder.path() + ": is a folder; expected a file");
}

TEST(YamlReader, Tabs) {
  std::string words = "a tab in the indentation; YAML is indented with spaces";
  EXPECT_EQ(error_of("a:\n\tb: 1\n"), "r.yaml:2:1: " + words);
  EXPECT_EQ(error_of("a:\n  b: 1\n  \tc: 2\n"), "r.yaml:3:3: " + words);
  EXPECT_EQ(error_of("a: |\n  text\n\tb: 1\n"), "r.yaml:3:1: " + words);
  EXPECT_EQ(read("a:\t1\n\t# comment\n \t\nb: 2\t# c\n").get_int("b"), 2);
}

TEST(YamlReader, KeysGivenTwiceNameBothLines) {
  Mistakes mistakes;
  ConfigValue root =
      read_yaml_text("train:\n  lr: 1\n  steps: 2\n  lr: 3\nmodel: {a: 1, a: 2}\ntrain: {}\n", "r.yaml", &mistakes);
  EXPECT_EQ(mistakes.lines(), (Lines{"r.yaml:4:3: train.lr: given twice; first at line 2",
                                     "r.yaml:5:15: model.a: given twice; first at line 5",
                                     "r.yaml:6:1: train: given twice; first at line 1"}));
  EXPECT_EQ(root.at("train").get_int("lr"), 1);
  EXPECT_EQ(error_of("a: 1\na: 2\n"),
            "r.yaml:2:1: a: given twice; first at line 1\n1 mistake in r.yaml; nothing was started.");
}

TEST(YamlReader, QuotesThatNeverClose) {
  EXPECT_EQ(error_of("a: 'x\nb: 2\n"), "r.yaml:1:4: this quote is never closed");
  EXPECT_EQ(error_of("b: 2\na: \"x\\\"\n"), "r.yaml:2:4: this quote is never closed");
  EXPECT_EQ(error_of("a: 'it''s\n"), "r.yaml:1:4: this quote is never closed");
  EXPECT_EQ(error_of("'a: 1\n"), "r.yaml:1:1: this quote is never closed");
  EXPECT_EQ(error_of("x: 'open\ny: 1\nz: 'k'\n"),
            "r.yaml:3:5: text goes on after a closing quote (opened at 1:4); a quote inside quotes is written twice");
  EXPECT_EQ(error_of("a: 'it's'\n"),
            "r.yaml:1:8: text goes on after a closing quote (opened at 1:4); a quote inside quotes is written twice");
}

TEST(YamlReader, SyntaxErrorsInPlainWords) {
  EXPECT_EQ(error_of("a: [1, 2\nb: 3\n"), "r.yaml:1:4: this '[' is never closed");
  EXPECT_EQ(error_of("a: {x: '}', # }\n"), "r.yaml:1:4: this '{' is never closed");
  EXPECT_EQ(error_of("[1, 2"), "r.yaml:1:1: this '[' is never closed");
  EXPECT_EQ(error_of("a: [1, 2\nb: 3]\n"), "r.yaml:2:2: expected ',' or ']' here; a '[' before is not closed");
  EXPECT_EQ(error_of("a: {x: 1\nb: 3}\n"), "r.yaml:2:2: expected ',' or '}' here; a '{' before is not closed");
  EXPECT_EQ(error_of("a: b: c\n"),
            "r.yaml:1:5: a ':' does not fit here; is the indentation right? text that contains ': ' needs quotes");
  EXPECT_EQ(error_of("a: 1\n  b: 2\n"),
            "r.yaml:2:4: a ':' does not fit here; is the indentation right? text that contains ': ' needs quotes");
  EXPECT_EQ(error_of("a: 1\nb:2\nc: 3\n"), "r.yaml:2:2: a space is missing after ':'");
  EXPECT_EQ(error_of("a: @x\n"), "r.yaml:1:4: text may not begin with this character; put it in quotes");
  EXPECT_EQ(error_of("a: *.q_proj\n"),
            "r.yaml:1:4: no anchor of this name before; text that begins with '*' needs quotes");
  EXPECT_EQ(error_of("a: {b: 1}}\n"), "r.yaml:1:10: a closing bracket without an opening one");
  EXPECT_EQ(error_of("a: - b\n"), "r.yaml:1:4: a '- item' does not fit here; begin it on a line of its own");
  EXPECT_EQ(error_of("a: \"\\N\"\n"), "r.yaml:1:4: an escape in this text is not read right; write it as \\uXXXX");
  EXPECT_EQ(error_of("a: \"\\q\"\n"), "r.yaml:1:7: unknown escape '\\q' in double quotes; use single quotes or '\\\\'");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"),
            "r.yaml:2:1: a second document begins here; a file holds one (is a line indented too little?)");
  EXPECT_EQ(error_of("? [1]\n: 2\n"), "r.yaml:1:3: a key must be plain text; braces here need quotes");
  EXPECT_EQ(error_of("~: 2\n"), "r.yaml:1:1: a key is missing before ':'");
  EXPECT_EQ(error_of("a: !thing 2\n"), "r.yaml:1:4: tag '!thing' means nothing here; write the plain value");
  EXPECT_EQ(error_of("a: 1\nb: caf\xe9\n"), "r.yaml:2: not UTF-8 text; expected a YAML file");
  EXPECT_EQ(error_of(std::string("a: 1\nb: \0", 9)), "r.yaml:2: not UTF-8 text; expected a YAML file");
}

TEST(YamlReader, DeepAndLoopingFilesAreRefused) {
  EXPECT_EQ(error_of("a: &x [*x]\n"), "r.yaml:1:8: an alias may not stand inside the value that it names");
  EXPECT_EQ(error_of("a: " + std::string(150, '[') + std::string(150, ']') + "\n"),
            "r.yaml:1:103: nested deeper than 100 levels");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    std::string before = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + before;
    for (int k = 0; k < 9; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_NE(error_of(bomb).find("more than 1,000,000 values through aliases"), std::string::npos);
}

TEST(YamlReader, DottedKeysNest) {
  ConfigValue root = read("tune:\n  encoders.image: frozen\n  backbone.lora.rank: 4\n  backbone: {bias: true}\n");
  const ConfigValue& tune = root.at("tune");
  EXPECT_EQ(tune.at("encoders").get_string("image"), "frozen");
  EXPECT_EQ(tune.at("backbone").at("lora").get_int("rank"), 4);
  EXPECT_TRUE(tune.at("backbone").get_bool("bias"));
  const ConfigValue& rank = tune.at("backbone").at("lora").at("rank");
  EXPECT_EQ(rank.path, "tune.backbone.lora.rank");
  EXPECT_EQ(rank.key_mark.str(), "r.yaml:3:17");
  EXPECT_TRUE(read("a: {b: 1}\na.c: 2\n") == read("a: {b: 1, c: 2}\n"));
  EXPECT_EQ(read("\"a.b\": 1\n").get_int("a.b"), 1);  // quoted: literally
}

TEST(YamlReader, DottedKeysGivenTwice) {
  auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  EXPECT_EQ(first_line(error_of("a.b: 1\na: {b: 2}\n")), "r.yaml:2:5: a.b: given twice; first at line 1");
  EXPECT_EQ(first_line(error_of("a: {b: 2}\na.b: 1\n")), "r.yaml:2:3: a.b: given twice; first at line 1");
  EXPECT_EQ(first_line(error_of("a.b: 1\na: {c: 2}\na: {d: 3}\n")), "r.yaml:3:1: a: given twice; first at line 2");
  EXPECT_EQ(first_line(error_of("a: 3\na.b: 1\n")), "r.yaml:2:1: a.b: 'a' has the value '3' already, at line 1");
  EXPECT_EQ(first_line(error_of("a.b: 1\na: 3\n")), "r.yaml:2:1: a: given twice; first at line 1");
  EXPECT_EQ(first_line(error_of("t: {a..b: 1}\n")),
            "r.yaml:1:5: t.a..b: a dotted key with an empty part; put it in quotes when the dots belong to the name");
}

TEST(YamlReader, AnchorsAndMerges) {
  ConfigValue root = read(
      "base: &base {lr: 1, steps: 2}\n"
      "extra: &extra {lr: 9, clip: 3}\n"
      "one: {<<: *base, steps: 5}\n"
      "two:\n  <<: [*base, *extra]\n  x: *base\n");
  EXPECT_EQ(root.at("one").text(), "{steps: 5, lr: 1}");
  EXPECT_EQ(root.at("two").text(), "{x: {lr: 1, steps: 2}, lr: 1, steps: 2, clip: 3}");
  EXPECT_EQ(root.at("one").at("lr").path, "one.lr");
  EXPECT_EQ(error_of("a: {<<: 3}\n"), "r.yaml:1:9: '<<' merges a map or a list of maps, found '3'");
}

class YamlVariables : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("LOOM_TEST_N", "64", 1);
    ::unsetenv("LOOM_TEST_UNSET");
  }
  void TearDown() override { ::unsetenv("LOOM_TEST_N"); }
};

TEST_F(YamlVariables, AreInserted) {
  ConfigValue root = read(
      "plain: ${LOOM_TEST_N}\nin: {quoted: \"${LOOM_TEST_N,3}\", path: \"${LOOM_TEST_UNSET,/usr/share}/x\"}\n"
      "text: \"${LOOM_TEST_N} samples\"\nraw: '$${LOOM_TEST_N}'\n");
  EXPECT_EQ(root.get_int("plain"), 64);
  EXPECT_EQ(root.at("in").get_int("quoted"), 64);  // quotes are forced by the braces: one variable alone keeps its type
  EXPECT_EQ(root.at("in").get_string("path"), "/usr/share/x");
  EXPECT_EQ(root.get_string("text"), "64 samples");
  EXPECT_EQ(root.get_string("raw"), "${LOOM_TEST_N}");
}

TEST_F(YamlVariables, UnquotedInsideBracesSaysToQuote) {
  std::string words = "'${...}' inside braces or brackets needs quotes: \"${VAR,default}\"";
  EXPECT_EQ(error_of("a: {b: ${DATA,/usr}/x, c: 1}\n"), "r.yaml:1:8: " + words);
  EXPECT_EQ(error_of("a: {b: ${DATA}}\n"), "r.yaml:1:8: " + words);
  EXPECT_EQ(error_of("a: [x, ${DATA,/usr}]\n"), "r.yaml:1:8: " + words);
  EXPECT_EQ(error_of("a: [{images: ${DATA,/usr}/x.gz,\n     labels: y}]\n"), "r.yaml:1:14: " + words);
}

TEST_F(YamlVariables, UnsetOnesAreMistakes) {
  Mistakes mistakes;
  read_yaml_text("data:\n  train: [{path: \"${LOOM_TEST_UNSET}/a\"}]\n  eval: ${no\n", "r.yaml", &mistakes);
  EXPECT_EQ(mistakes.lines(),
            (Lines{"r.yaml:2:18: data.train.0.path: environment variable LOOM_TEST_UNSET is not set; set it or "
                   "give a default, ${LOOM_TEST_UNSET,default}",
                   "r.yaml:3:9: data.eval: '${' without its '}'"}));
}

// Damaged files: whatever happens is one UserError whose first line begins with the file's name.
TEST(YamlReader, RandomDamageIsAlwaysOneReadableLine) {
  const std::string good =
      "name: demo\nmodel: &m {encoders: {image: {plugin: vit, w: [1, 2]}}}\n# note\ntrain:\n  lr: 1e-3\n  t.u: "
      "'it''s'\n"
      "data:\n- {path: \"${X_Y,/usr}/a\"}\n- |\n  text\nlast: {<<: *m, b: -1}\n";
  const std::string bytes = "{}[]:,'\"#&*!|>%@`-?<$\\\t\n .0a\x01\xc3\xff";
  int refused = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    Philox random({.seed = seed, .purpose = Purpose::augment});
    std::string text = good;
    for (uint64_t n = 0; n <= seed % 4; ++n) {
      std::size_t at = random.below(text.size(), 3 * n);
      char c = bytes[random.below(bytes.size(), 3 * n + 1)];
      switch (random.below(3, 3 * n + 2)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 1 + at % 9);
          break;
      }
    }
    try {
      read(text);
    } catch (const UserError& error) {
      ++refused;
      ASSERT_TRUE(std::string(error.what()).starts_with("r.yaml:")) << error.what();
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace loom
