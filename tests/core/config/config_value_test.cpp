// The value tree: typed reads that say where a wrong value stands, paths, equality.
#include "core/config/config_value.h"

#include <cmath>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;

ConfigValue sample() {
  ConfigValue root = ConfigValue::map();
  ConfigValue& train = root.set("train", ConfigValue::map());
  train.set("lr", ConfigValue::number(0.5));
  train.set("steps", ConfigValue::integer(7));
  train.set("names", ConfigValue::list({ConfigValue::string("a"), ConfigValue::boolean(true)}));
  return root;
}

TEST(ConfigValue, ReadsAndPaths) {
  ConfigValue root = sample();
  const ConfigValue& train = root.at("train");
  EXPECT_EQ(train.get_number("lr"), 0.5);
  EXPECT_EQ(train.get_number("steps"), 7.0);
  EXPECT_EQ(train.get_int("steps"), 7);
  EXPECT_EQ(train.at("names").items()[1].path, "train.names.1");
  EXPECT_TRUE(train.at("names").items()[1].as_bool());
  EXPECT_EQ(root.find("no"), nullptr);
  EXPECT_EQ(ConfigValue().find("no"), nullptr);
  EXPECT_EQ(train.at("names").text(), "[a, true]");
  EXPECT_EQ(root.text(), "{train: {lr: 0.5, steps: 7, names: [a, true]}}");
}

TEST(ConfigValue, MismatchesNamePlaceAndBothKinds) {
  ConfigValue root = sample();
  root.at("train");
  ConfigValue& lr = *root.find("train")->find("lr");
  lr.mark = {"bad.yaml", 14, 12};
  EXPECT_EQ(message_of<UserError>([&] { lr.as_int(); }), "bad.yaml:14:12: train.lr: expected an integer, found '0.5'");
  EXPECT_EQ(message_of<UserError>([&] { lr.as_bool(); }),
            "bad.yaml:14:12: train.lr: expected true or false, found '0.5'");
  EXPECT_EQ(message_of<UserError>([&] { lr.items(); }), "bad.yaml:14:12: train.lr: expected a list, found '0.5'");
  EXPECT_EQ(message_of<UserError>([&] { lr.find("x"); }), "bad.yaml:14:12: train.lr: expected a map, found '0.5'");
  EXPECT_EQ(message_of<UserError>([&] { root.at("train").as_string(); }), "train: expected a string, found a map");
  EXPECT_EQ(message_of<UserError>([&] { root.at("train").at("names").as_number(); }),
            "train.names: expected a number, found a list");
  EXPECT_EQ(message_of<UserError>([&] { ConfigValue().as_string(); }), "expected a string, found nothing");
  root.find("train")->key_mark = {"bad.yaml", 3, 1};
  EXPECT_EQ(message_of<UserError>([&] { root.at("train").get_int("no"); }), "bad.yaml:3:1: train.no: missing");
}

TEST(ConfigValue, SetReplacesAndErases) {
  ConfigValue root;
  root.set("a", ConfigValue::integer(1));
  root.set("b", ConfigValue::integer(2));
  root.set("a", ConfigValue::string("x"));
  ASSERT_EQ(root.entries().size(), 2u);
  EXPECT_EQ(root.entries()[0].second.as_string(), "x");
  root.erase("a");
  EXPECT_EQ(root.entries().size(), 1u);
  root.erase("no");
  EXPECT_EQ(root.entries().size(), 1u);
}

TEST(ConfigValue, EqualityIgnoresPlacesAndOrder) {
  ConfigValue a = sample(), b = sample();
  b.stamp({"other.yaml", 3, 4});
  EXPECT_TRUE(a == b);
  std::swap(b.find("train")->entries()[0], b.find("train")->entries()[1]);
  EXPECT_TRUE(a == b);
  b.find("train")->set("lr", ConfigValue::number(0.25));
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(ConfigValue::integer(1) == ConfigValue::number(1));
  EXPECT_FALSE(ConfigValue() == ConfigValue::string(""));
  EXPECT_TRUE(ConfigValue::number(std::nan("")) == ConfigValue::number(std::nan("")));
  EXPECT_FALSE(ConfigValue::list({ConfigValue::integer(1)}) == ConfigValue::list());
}

TEST(ConfigValue, Marks) {
  EXPECT_EQ((Mark{"a.yaml", 3, 4}).str(), "a.yaml:3:4");
  EXPECT_EQ((Mark{"a.yaml", 3, 0}).str(), "a.yaml:3");
  EXPECT_EQ((Mark{"command line", 0, 0}).str(), "command line");
  EXPECT_EQ(Mark().str(), "");
}

}  // namespace
}  // namespace loom
