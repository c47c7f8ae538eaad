// Who gets which settings, and what a misspelt pattern is told.
#include "core/train/param_groups.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/core/train/buffers.h"

namespace loom {
namespace {

using test::Buffers;

ConfigValue rule(const std::string& match, std::vector<ConfigValue::Entry> settings) {
  ConfigValue text = ConfigValue::string(match);
  text.mark = {"recipe.yaml", 9, 7};
  text.path = "train.groups.0.match";
  settings.insert(settings.begin(), {"match", text});
  return ConfigValue::map(std::move(settings));
}

ParamGroups read(std::vector<ConfigValue::Entry> entries) {
  Schema schema;
  add_param_group_fields(schema);
  Mistakes mistakes;
  ConfigValue section = ConfigValue::map(std::move(entries));
  section.path = "train";
  const ConfigValue value = validate(section, schema, mistakes);
  mistakes.throw_if_any("recipe.yaml");
  return read_param_groups(value);
}

std::string message_of(const ParamGroups& groups, const Buffers& buffers) {
  try {
    resolve_param_groups(groups, buffers.all());
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ParamGroups, DefaultsDecayMatricesOnly) {
  const Buffers buffers(at::kFloat);
  const auto settings = resolve_param_groups(read({{"weight_decay", ConfigValue::number(0.1)}}), buffers.all());
  ASSERT_EQ(settings.size(), 3u);
  EXPECT_EQ(settings[0], (std::vector<EntrySettings>{{1, 0.1}, {1, 0}}));
  EXPECT_EQ(settings[1], (std::vector<EntrySettings>{{1, 0.1}, {1, 0}, {1, 0}}));
}

TEST(ParamGroups, LastMatchWinsPerSetting) {
  const Buffers buffers(at::kFloat);
  const ParamGroups groups =
      read({{"weight_decay", ConfigValue::number(0.1)},
            {"groups",
             ConfigValue::list({rule("encoders.image.*", {{"lr_factor", ConfigValue::number(0.5)},
                                                          {"weight_decay", ConfigValue::integer(0)}}),
                                rule("*.norm.*", {{"weight_decay", ConfigValue::number(0.3)}}),
                                rule("encoders.image.blocks.0.q*", {{"lr_factor", ConfigValue::number(0.25)}})})}});
  const auto settings = resolve_param_groups(groups, buffers.all());
  EXPECT_EQ(settings[0], (std::vector<EntrySettings>{{0.25, 0}, {0.5, 0.3}}));
  EXPECT_EQ(settings[1], (std::vector<EntrySettings>{{1, 0.1}, {1, 0.3}, {1, 0}}));
}

TEST(ParamGroups, FactorsOfComponentsInBothSpellings) {
  const Buffers buffers(at::kFloat);
  const ConfigValue nested = ConfigValue::map({{"encoders", ConfigValue::map({{"image", ConfigValue::integer(5)}})}});
  const ConfigValue dotted = ConfigValue::map({{"encoders.image", ConfigValue::integer(5)}});
  for (const ConfigValue& factors : {nested, dotted}) {
    const auto settings = resolve_param_groups(read({{"lr_factor", factors}}), buffers.all());
    EXPECT_EQ(settings[0][0].lr_factor, 5);
    EXPECT_EQ(settings[0][1].lr_factor, 5);
    EXPECT_EQ(settings[1][0].lr_factor, 1);
  }
}

TEST(ParamGroups, TheLongestPrefixWinsAndRulesOverrideIt) {
  const Buffers buffers(at::kFloat);
  const ParamGroups groups = read(
      {{"lr_factor",
        ConfigValue::map({{"encoders.image.blocks", ConfigValue::integer(2)}, {"encoders", ConfigValue::integer(5)}})},
       {"groups", ConfigValue::list({rule("*.qkv.*", {{"lr_factor", ConfigValue::integer(9)}})})}});
  const auto settings = resolve_param_groups(groups, buffers.all());
  EXPECT_EQ(settings[0][0].lr_factor, 9);
  EXPECT_EQ(settings[0][1].lr_factor, 2);
  EXPECT_EQ(settings[2][0].lr_factor, 5);
}

TEST(ParamGroups, APrefixIsWholeNames) {
  const Buffers buffers(at::kFloat);
  EXPECT_NE(message_of(read({{"lr_factor", ConfigValue::map({{"back", ConfigValue::integer(2)}})}}), buffers), "");
}

TEST(ParamGroups, AMisspeltPatternNamesTheNearestName) {
  const Buffers buffers(at::kFloat);
  const ConfigValue zero = ConfigValue::integer(0);
  EXPECT_EQ(
      message_of(read({{"groups", ConfigValue::list({rule("encoders.imag.*", {{"weight_decay", zero}})})}}), buffers),
      "recipe.yaml:9:7: train.groups.0.match: no parameter matches 'encoders.imag.*'; did you mean "
      "'encoders.image.*'?");
  EXPECT_EQ(message_of(read({{"groups", ConfigValue::list({rule("backbone.embd.weight", {{"weight_decay", zero}})})}}),
                       buffers),
            "recipe.yaml:9:7: train.groups.0.match: no parameter matches 'backbone.embd.weight'; did you mean "
            "'backbone.embed.weight'?");
  EXPECT_NE(message_of(read({{"groups", ConfigValue::list({rule("zzz", {{"weight_decay", zero}})})}}), buffers)
                .find("components are backbone, encoders.audio, encoders.image"),
            std::string::npos);
}

TEST(ParamGroups, ARankThatHoldsNothingOfAParameterKnowsItAllTheSame) {
  const ConfigValue factor = ConfigValue::number(0.5);
  const ParamGroups groups = read({{"groups", ConfigValue::list({rule("backbone.head.bias", {{"lr_factor", factor}}),
                                                                 rule("encoders.image.*", {{"lr_factor", factor}})})}});
  std::vector<int> matched(4);
  run_loopback(4, [&](Communicator& comm) {
    const Buffers buffers(at::kFloat, test::sharding_on(comm, 4));
    const auto settings = resolve_param_groups(groups, buffers.all());
    for (size_t b = 0; b < settings.size(); ++b) {
      const std::vector<BufferEntry>& entries = buffers.all()[b]->entries();
      ASSERT_EQ(settings[b].size(), entries.size());
      for (size_t e = 0; e < entries.size(); ++e) {
        const bool wanted = entries[e].name == "backbone.head.bias" || entries[e].name.starts_with("encoders.image.");
        EXPECT_EQ(settings[b][e].lr_factor, wanted ? 0.5 : 1.0) << entries[e].name;
        matched[static_cast<size_t>(comm.rank())] += entries[e].name == "backbone.head.bias" ? 1 : 0;
      }
    }
  });
  EXPECT_EQ(matched[0] + matched[1] + matched[2] + matched[3], 1);  // one rank alone holds the bias
}

TEST(ParamGroups, RefusesWhatIsNotAFactor) {
  EXPECT_THROW(read({{"lr_factor", ConfigValue::integer(2)}}), UserError);
  EXPECT_THROW(read({{"lr_factor", ConfigValue::map({{"backbone", ConfigValue::string("fast")}})}}), UserError);
  EXPECT_THROW(read({{"lr_factor", ConfigValue::map({{"backbone", ConfigValue::number(-1)}})}}), UserError);
  EXPECT_THROW(read({{"groups", ConfigValue::list({rule("*", {{"weight_decy", ConfigValue::integer(0)}})})}}),
               UserError);
}

TEST(ParamGroups, ComponentOfAName) {
  EXPECT_EQ(component_of("encoders.image.blocks.0.norm.weight"), "encoders.image");
  EXPECT_EQ(component_of("connectors.image.fc1.weight"), "connectors.image");
  EXPECT_EQ(component_of("backbone.embed.weight"), "backbone");
  EXPECT_EQ(component_of("backbone"), "backbone");
}

}  // namespace
}  // namespace loom
