// Values from the command line.
#include "core/config/overrides.h"

#include "core/base/error.h"
#include "core/config/yaml_reader.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;
using Args = std::vector<std::string>;

ConfigValue recipe() {
  return read_yaml_text(
      "name: a\ntrain: {lr: 1, tags: []}\ndata:\n  train: [{path: x}, {path: y}]\nfactors: {\"*.q_proj\": {x: 1}}\n",
      "r.yaml");
}

std::string after(const Args& args) {
  ConfigValue root = recipe();
  apply_overrides(root, args);
  return root.text();
}

std::string error_of(const Args& args) {
  return message_of<UserError>([&] { after(args); });
}

TEST(Overrides, AllForms) {
  for (const Args& args : {Args{"train.lr=2e-4"}, Args{"--train.lr=2e-4"}, Args{"--train.lr", "2e-4"}}) {
    ConfigValue root = recipe();
    apply_overrides(root, args);
    const ConfigValue& lr = root.at("train").at("lr");
    EXPECT_EQ(lr.as_number(), 2e-4);
    EXPECT_EQ(lr.mark.str(), "command line");
    EXPECT_EQ(lr.path, "train.lr");
    EXPECT_EQ(root.get_string("name"), "a");
  }
}

TEST(Overrides, TheTreeMayChangeBetweenTwo) {
  ConfigValue root = recipe();
  apply_overrides(root, {"train=short", "train.lr=7"}, [](ConfigValue& tree) {
    if (!tree.at("train").is_map()) tree.set("train", ConfigValue::map({{"steps", ConfigValue::integer(3)}}));
  });
  EXPECT_EQ(root.at("train").get_int("steps"), 3);
  EXPECT_EQ(root.at("train").get_int("lr"), 7);
}

TEST(Overrides, ValuesAreYaml) {
  ConfigValue root;
  apply_overrides(root, {"i=3", "n=1e-5", "b=true", "s=yes", "l=[1, 'a b']", "m={a: {b: 2}}", "q='12'", "e=", "z=null",
                         "c=a photo: of {name} # not a comment", "g=*.q_proj", "eq=a=b", "--neg", "-1", "d={x.y: 1}"});
  EXPECT_EQ(root.get_int("i"), 3);
  EXPECT_EQ(root.get_number("n"), 1e-5);
  EXPECT_TRUE(root.get_bool("b"));
  EXPECT_EQ(root.get_string("s"), "yes");
  EXPECT_EQ(root.at("l").items()[1].as_string(), "a b");
  EXPECT_EQ(root.at("m").at("a").get_int("b"), 2);
  EXPECT_EQ(root.at("m").at("a").at("b").path, "m.a.b");
  EXPECT_EQ(root.at("m").at("a").at("b").mark.str(), "command line");
  EXPECT_EQ(root.get_string("q"), "12");
  EXPECT_EQ(root.get_string("e"), "");
  EXPECT_TRUE(root.at("z").is_null());
  EXPECT_EQ(root.get_string("c"), "a photo: of {name} # not a comment");
  EXPECT_EQ(root.get_string("g"), "*.q_proj");
  EXPECT_EQ(root.get_string("eq"), "a=b");
  EXPECT_EQ(root.get_int("neg"), -1);
  EXPECT_EQ(root.at("d").at("x").get_int("y"), 1);
}

TEST(Overrides, ListItemsNewKeysAndOrder) {
  EXPECT_EQ(after({"data.train.1.path=z"}),
            "{name: a, train: {lr: 1, tags: []}, data: {train: [{path: x}, {path: z}]}, factors: {*.q_proj: {x: 1}}}");
  EXPECT_EQ(after({"data.train.0=[7]", "data.train.0.0=8"}),
            "{name: a, train: {lr: 1, tags: []}, data: {train: [[8], {path: y}]}, factors: {*.q_proj: {x: 1}}}");
  EXPECT_EQ(after({"train.lr=2", "--train.lr", "3", "a.b.c=1"}),
            "{name: a, train: {lr: 3, tags: []}, data: {train: [{path: x}, {path: y}]}, factors: {*.q_proj: {x: 1}}, "
            "a: {b: {c: 1}}}");
  EXPECT_EQ(after({"factors.*.q_proj.x=2"}),
            "{name: a, train: {lr: 1, tags: []}, data: {train: [{path: x}, {path: y}]}, factors: {*.q_proj: {x: 2}}}");
}

TEST(Overrides, MadeMapsSayWhereTheyComeFrom) {
  ConfigValue root = recipe();
  apply_overrides(root, {"new.key=1"});
  EXPECT_EQ(root.at("new").where().str(), "command line");
  EXPECT_EQ(root.at("new").at("key").path, "new.key");
}

TEST(Overrides, Mistakes) {
  EXPECT_EQ(error_of({"data.train.2.path=z"}), "command line: data.train.2: no item 2; the list has 2 items, 0 to 1");
  EXPECT_EQ(
      error_of({"data.train.99999999999999999999=z"}),
      "command line: data.train.99999999999999999999: no item 99999999999999999999; the list has 2 items, 0 to 1");
  EXPECT_EQ(error_of({"train.tags.0=z"}), "command line: train.tags.0: no item 0; the list has 0 items");
  EXPECT_EQ(error_of({"data.train.path=z"}),
            "command line: data.train.path: expected the number of a list item, found 'path' (the list has 2 items)");
  EXPECT_EQ(error_of({"data.train.-1.path=z"}),
            "command line: data.train.-1: expected the number of a list item, found '-1' (the list has 2 items)");
  EXPECT_EQ(error_of({"train.lr.x=1"}), "command line: train.lr.x: 'train.lr' is '1', not a map");
  EXPECT_EQ(error_of({"train"}), "command line: 'train' is no override; expected key=value or --key value");
  EXPECT_EQ(error_of({"--train.lr"}), "command line: --train.lr: no value follows; expected --train.lr VALUE");
  EXPECT_EQ(error_of({"--train.lr", "--x=1"}), "command line: --train.lr: no value follows; expected --train.lr VALUE");
  EXPECT_EQ(error_of({"=3"}), "command line: '=3' names no recipe key; expected key=value");
  EXPECT_EQ(error_of({"-x"}), "command line: '-x' names no recipe key; expected key=value");
  EXPECT_EQ(error_of({"a..b=3"}), "command line: 'a..b' has an empty part; expected a.b=value");
  EXPECT_EQ(error_of({"a=[1, 2"}), "command line: a: '[1, 2': this '[' is never closed");
  EXPECT_EQ(error_of({"a='x"}), "command line: a: ''x': this quote is never closed");
  EXPECT_EQ(error_of({"a={b: 1, b: 2}"}), "command line: a: '{b: 1, b: 2}': b: given twice; first at line 1");
  EXPECT_EQ(error_of({"a=${LOOM_TEST_UNSET}"}),
            "command line: a: environment variable LOOM_TEST_UNSET is not set; set it or give a default, "
            "${LOOM_TEST_UNSET,default}");
  EXPECT_EQ(error_of({"a=caf\xe9"}), "command line: argument 1 is not UTF-8 text");
}

}  // namespace
}  // namespace loom
