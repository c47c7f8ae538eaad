// Validation: every message literally, all of a file together, defaults in schema order.
#include "core/config/schema.h"

#include "core/base/error.h"
#include "core/config/yaml_reader.h"
#include "core/config/yaml_writer.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;
using Lines = std::vector<std::string>;

Schema model_schema() {
  Schema backbone;
  backbone.string("plugin", "", "which one").required();
  backbone.integer("width", 128, {1, 65536}, "channels");
  backbone.integer("kv_heads", 2, {.min = 1}, "groups");
  backbone.number("dropout", 0, {0, 1}, "probability");
  backbone.boolean("tied", true, "one matrix for both ends");
  Schema model;
  model.section("backbone", backbone, "the language model");
  return model;
}

Schema recipe_schema() {
  Schema source;
  source.string("path", "", "file").required();
  source.number("weight", 1, {.min = 0}, "share");
  Schema encoder;
  encoder.string("plugin", "", "which one").required();
  encoder.open();
  Schema train;
  train.integer("steps", 0, {.min = 1}, "how many").required();
  train.number("lr", 1e-3, {.max = 10}, "learning rate");
  train.choice("schedule", "cosine", {"cosine", "linear", "constant"}, "of the learning rate");
  train.integer("warmup", 0, {}, "steps").optional();
  Schema recipe;
  recipe.string("name", "", "of the run").required();
  recipe.section("model", model_schema(), "the model");
  recipe.section("train", train, "the loop").required();
  recipe.list_of("data", source, "sources");
  recipe.list("labels", FieldType::string, "names");
  recipe.map_of("encoders", encoder, "by modality");
  recipe.any("tune", "taken as it is");
  return recipe;
}

// The messages for a recipe called bad.yaml.
Lines mistakes_of(const std::string& text, const Schema& schema = recipe_schema()) {
  Mistakes mistakes;
  ConfigValue value = read_yaml_text(text, "bad.yaml", &mistakes);
  validate(value, schema, mistakes);
  return mistakes.lines();
}

const char* const kGood = "name: a\nmodel: {backbone: {plugin: llama}}\ntrain: {steps: 5}\n";

TEST(Schema, AGoodRecipeHasNoMistakesAndItsDefaults) {
  Mistakes mistakes;
  ConfigValue value = validate(read_yaml_text(kGood, "good.yaml"), recipe_schema(), mistakes);
  EXPECT_EQ(mistakes.lines(), Lines{});
  mistakes.throw_if_any("good.yaml");
  EXPECT_EQ(write_yaml(value),
            "name: a\n"
            "model:\n"
            "  backbone:\n"
            "    plugin: llama\n"
            "    width: 128\n"
            "    kv_heads: 2\n"
            "    dropout: 0.0\n"
            "    tied: true\n"
            "train:\n"
            "  steps: 5\n"
            "  lr: 0.001\n"
            "  schedule: cosine\n"
            "data: []\n"
            "labels: []\n"
            "encoders: {}\n");
  EXPECT_EQ(value.at("train").find("warmup"), nullptr);
  EXPECT_EQ(value.find("tune"), nullptr);
  EXPECT_EQ(value.at("train").at("lr").mark.str(), "default");
  EXPECT_EQ(value.at("train").at("lr").path, "train.lr");
  EXPECT_EQ(value.at("model").at("backbone").at("tied").path, "model.backbone.tied");
  EXPECT_EQ(value.at("train").at("steps").mark.str(), "good.yaml:3:16");
}

TEST(Schema, WhatIsFilledInValidatesToItself) {
  Mistakes mistakes;
  ConfigValue once = validate(read_yaml_text(kGood, "good.yaml"), recipe_schema(), mistakes);
  ConfigValue twice = validate(read_yaml_text(write_yaml(once), "resolved"), recipe_schema(), mistakes);
  EXPECT_TRUE(mistakes.empty());
  EXPECT_TRUE(once == twice);
}

TEST(Schema, TheScreenOfTheManual) {
  std::string text =
      "name: doors\n"
      "model:\n"
      "  # the language model\n"
      "  backbone:\n"
      "    plugin: llama\n"
      "    width: 128\n"
      "\n"
      "      \n"
      "    kv_head: 3\n"
      "train:\n"
      "  steps: 10\n"
      "\n"
      "  # learning\n"
      "  lr:      fast\n";
  EXPECT_EQ(mistakes_of(text), (Lines{"bad.yaml:9:5: model.backbone.kv_head: unknown key; did you mean 'kv_heads'?",
                                      "bad.yaml:14:12: train.lr: expected a number of at most 10, found 'fast'"}));
  Mistakes mistakes;
  validate(read_yaml_text(text, "bad.yaml"), recipe_schema(), mistakes);
  mistakes.add_line("bad.yaml:6: encoders.image: no encoder 'vitt'; did you mean 'vit'?");
  EXPECT_EQ(message_of<UserError>([&] { mistakes.throw_if_any("bad.yaml"); }),
            "bad.yaml:6: encoders.image: no encoder 'vitt'; did you mean 'vit'?\n"
            "bad.yaml:9:5: model.backbone.kv_head: unknown key; did you mean 'kv_heads'?\n"
            "bad.yaml:14:12: train.lr: expected a number of at most 10, found 'fast'\n"
            "3 mistakes in bad.yaml; nothing was started.");
}

TEST(Schema, WrongTypes) {
  std::string head = "name: a\ntrain: {steps: 5}\nmodel:\n backbone:\n  plugin: x\n  ";
  EXPECT_EQ(mistakes_of(head + "width: 64.0\n"),
            Lines{"bad.yaml:6:10: model.backbone.width: expected an integer from 1 to 65536, found '64.0'"});
  EXPECT_EQ(mistakes_of(head + "width: '64'\n"),
            Lines{"bad.yaml:6:10: model.backbone.width: expected an integer from 1 to 65536, found '64'"});
  EXPECT_EQ(mistakes_of(head + "width: 0\n"),
            Lines{"bad.yaml:6:10: model.backbone.width: expected an integer from 1 to 65536, found '0'"});
  EXPECT_EQ(mistakes_of(head + "width: [1]\n"),
            Lines{"bad.yaml:6:10: model.backbone.width: expected an integer from 1 to 65536, found a list"});
  EXPECT_EQ(mistakes_of(head + "width:\n"),
            Lines{"bad.yaml:6:3: model.backbone.width: expected an integer from 1 to 65536, found nothing"});
  EXPECT_EQ(mistakes_of(head + "kv_heads: -2\n"),
            Lines{"bad.yaml:6:13: model.backbone.kv_heads: expected an integer of at least 1, found '-2'"});
  EXPECT_EQ(mistakes_of(head + "dropout: 1.5\n"),
            Lines{"bad.yaml:6:12: model.backbone.dropout: expected a number from 0 to 1, found '1.5'"});
  EXPECT_EQ(mistakes_of(head + "dropout: .nan\n"),
            Lines{"bad.yaml:6:12: model.backbone.dropout: expected a number from 0 to 1, found '.nan'"});
  EXPECT_EQ(mistakes_of(head + "dropout: 1\n"), Lines{});
  EXPECT_EQ(mistakes_of(head + "tied: yes\n"),
            Lines{"bad.yaml:6:9: model.backbone.tied: expected true or false, found 'yes'"});
  EXPECT_EQ(mistakes_of("name: a\nmodel: 3\ntrain: {steps: 5}\n"),
            Lines{"bad.yaml:2:8: model: expected a map ('key: value' lines), found '3'"});
  EXPECT_EQ(mistakes_of("- a\n"), Lines{"bad.yaml:1:1: expected a map ('key: value' lines), found a list"});
  EXPECT_EQ(mistakes_of("train\n"), Lines{"bad.yaml:1:1: expected a map ('key: value' lines), found 'train'"});
}

TEST(Schema, ChoicesAndStrings) {
  std::string head = "name: 2024\nmodel: {backbone: {plugin: 007}}\ntrain:\n  steps: 5\n";
  EXPECT_EQ(mistakes_of(head + "  schedule: cosin\n"),
            Lines{"bad.yaml:5:13: train.schedule: expected one of 'cosine', 'linear', 'constant', found 'cosin'; "
                  "did you mean 'cosine'?"});
  EXPECT_EQ(mistakes_of(head + "  schedule: {a: 1}\n"),
            Lines{"bad.yaml:5:13: train.schedule: expected one of 'cosine', 'linear', 'constant', found a map"});
  Mistakes mistakes;
  ConfigValue value = validate(read_yaml_text(head, "x"), recipe_schema(), mistakes);
  EXPECT_TRUE(mistakes.empty());
  EXPECT_EQ(value.get_string("name"), "2024");  // as it is written
  EXPECT_EQ(value.at("model").at("backbone").get_string("plugin"), "007");
}

TEST(Schema, MissingKeysStandAtTheirParent) {
  EXPECT_EQ(mistakes_of("# empty but for this\nmodel: {}\n"),
            (Lines{"bad.yaml:2:1: name: missing; expected a string",
                   "bad.yaml:2:1: model.backbone.plugin: missing; expected a string",
                   "bad.yaml:2:1: train: missing; expected a map ('key: value' lines)"}));
  EXPECT_EQ(mistakes_of("name: a\nmodel: {backbone: {plugin: x}}\ntrain:\n  lr: 1\n"),
            Lines{"bad.yaml:3:1: train.steps: missing; expected an integer of at least 1"});
  EXPECT_EQ(mistakes_of("name: a\nmodel: {backbone: {plugin: x}}\ntrain:\n"),
            Lines{"bad.yaml:3:1: train: missing; expected a map ('key: value' lines)"});
  EXPECT_EQ(mistakes_of("name: a\ntrain: {steps: 5}\nmodel:\n"),
            Lines{"bad.yaml:3:1: model.backbone.plugin: missing; expected a string"});
}

TEST(Schema, ListsAndMaps) {
  std::string head = kGood;
  EXPECT_EQ(mistakes_of(head + "data:\n- {path: a, weight: -1}\n- {wieght: 2}\n- b\n"),
            (Lines{"bad.yaml:5:21: data.0.weight: expected a number of at least 0, found '-1'",
                   "bad.yaml:6:3: data.1.path: missing; expected a string",
                   "bad.yaml:6:4: data.1.wieght: unknown key; did you mean 'weight'?",
                   "bad.yaml:7:3: data.2: expected a map ('key: value' lines), found 'b'"}));
  EXPECT_EQ(mistakes_of(head + "data: a\n"), Lines{"bad.yaml:4:7: data: expected a list of maps, found 'a'"});
  EXPECT_EQ(mistakes_of(head + "labels: [a, [b], 3]\n"),
            Lines{"bad.yaml:4:13: labels.1: expected a string, found a list"});
  EXPECT_EQ(mistakes_of(head + "encoders:\n  image: {plugin: vit, free: 1}\n  speech: {depth: 2}\n"),
            Lines{"bad.yaml:6:3: encoders.speech.plugin: missing; expected a string"});
  EXPECT_EQ(mistakes_of(head + "encoders: [a]\n"),
            Lines{"bad.yaml:4:11: encoders: expected a map of maps, found a list"});
  Mistakes mistakes;
  ConfigValue value =
      validate(read_yaml_text(head + "tune: {a: [1]}\nencoders: {image: {plugin: vit, free: 1}}\n", "x"),
               recipe_schema(), mistakes);
  EXPECT_TRUE(mistakes.empty());
  EXPECT_EQ(value.at("encoders").at("image").get_int("free"), 1);
  EXPECT_EQ(value.at("encoders").at("image").at("free").path, "encoders.image.free");
  EXPECT_EQ(value.at("tune").text(), "{a: [1]}");
}

TEST(Schema, UnknownKeysWithoutANeighbourListWhatIsKnown) {
  Schema small;
  small.integer("width", 1, {}, "").integer("depth", 1, {}, "");
  EXPECT_EQ(mistakes_of("colour: red\n", small), Lines{"bad.yaml:1:1: colour: unknown key; known here: width, depth"});
  EXPECT_EQ(mistakes_of("colour: red\n", Schema()),
            Lines{"bad.yaml:1:1: colour: unknown key; no keys are expected here"});
}

TEST(Schema, MistakesAreSortedAndCounted) {
  Mistakes mistakes;
  mistakes.throw_if_any("x.yaml");
  mistakes.add({"command line", 0, 0}, "train.lr", "expected a number, found 'x'");
  mistakes.add({"x.yaml", 10, 2}, "a", "ten");
  mistakes.add({"x.yaml", 9, 30}, "b", "nine, late");
  mistakes.add({"x.yaml", 9, 4}, "c", "nine, early");
  mistakes.add_line("x.yaml:9:7: d: whole line");
  EXPECT_EQ(mistakes.lines(),
            (Lines{"x.yaml:9:4: c: nine, early", "x.yaml:9:7: d: whole line", "x.yaml:9:30: b: nine, late",
                   "x.yaml:10:2: a: ten", "command line: train.lr: expected a number, found 'x'"}));
  Mistakes one;
  one.add({"x.yaml", 1, 1}, "", "wrong");
  EXPECT_EQ(message_of<UserError>([&] { one.throw_if_any("x.yaml"); }),
            "x.yaml:1:1: wrong\n1 mistake in x.yaml; nothing was started.");
}

TEST(Schema, Describe) {
  EXPECT_EQ(recipe_schema().describe(),
            "  name      string, required  of the run\n"
            "  model     map               the model\n"
            "    backbone  map  the language model\n"
            "      plugin    string, required      which one\n"
            "      width     int [1..65536] = 128  channels\n"
            "      kv_heads  int [1..] = 2         groups\n"
            "      dropout   number [0..1] = 0     probability\n"
            "      tied      bool = true           one matrix for both ends\n"
            "  train     map, required     the loop\n"
            "    steps     int [1..], required              how many\n"
            "    lr        number [..10] = 0.001            learning rate\n"
            "    schedule  cosine|linear|constant = cosine  of the learning rate\n"
            "    warmup    int, optional                    steps\n"
            "  data      list of maps      sources\n"
            "    path    string, required  file\n"
            "    weight  number [0..] = 1  share\n"
            "  labels    list of strings   names\n"
            "  encoders  map of maps       by modality\n"
            "    plugin  string, required  which one\n"
            "  tune      any               taken as it is\n");
}

TEST(Schema, AuthorsMistakesAreBugs) {
  Schema schema;
  schema.integer("a", 1, {}, "");
  EXPECT_THROW(schema.string("a", "", ""), InternalError);
  EXPECT_THROW(Schema().required(), InternalError);
}

}  // namespace
}  // namespace loom
