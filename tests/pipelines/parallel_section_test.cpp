// Layouts from a recipe: sizes against the number of ranks, and what a lane cannot split. What users see of it end to
// end is in tests/scripts/loopback.py.
#include "pipelines/parallel_section.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "pipelines/layout_checks.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

Recipe recipe_of(std::vector<ConfigValue::Entry> sections) {
  ConfigValue parallel = ConfigValue::map(std::move(sections));
  parallel.place("parallel");
  parallel.stamp({"recipe.yaml", 9, 5});
  Mistakes mistakes;
  Recipe recipe;
  recipe.tree = ConfigValue::map({{"parallel", validate(parallel, parallel_schema(), mistakes)}});
  mistakes.throw_if_any("recipe.yaml");
  recipe.encoders["image"];
  recipe.connectors["image"];
  return recipe;
}

ConfigValue sizes(int64_t sp, int64_t shard) {
  return ConfigValue::map({{"sp", ConfigValue::integer(sp)}, {"shard", ConfigValue::integer(shard)}});
}

std::string refusal(const Recipe& recipe, int world) {
  try {
    read_layout(recipe, world);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ParallelSection, ReadsEveryComponent) {
  const Recipe recipe =
      recipe_of({{"encoders", ConfigValue::map({{"image", sizes(3, 4)}})}, {"backbone", sizes(2, 1)}});
  const WorldLayout layout = read_layout(recipe, 4);
  EXPECT_EQ(layout.world, 4);
  EXPECT_EQ(layout.lanes(), 2);
  EXPECT_EQ(layout.backbone.shard, 1);
  EXPECT_EQ(layout.encoder("image").sp, 3);
  EXPECT_EQ(layout.encoder("image").shard, 4);
  EXPECT_EQ(layout.connector("image").shard, 0);
  const Recipe wide = recipe_of({{"encoders", ConfigValue::map({{"image", sizes(8, 0)}})}});
  EXPECT_EQ(read_layout(wide, 4).encoder("image").sp, 4);  // "most ranks": fewer are fine
  EXPECT_EQ(read_layout(Recipe{}, 2).encoder("image").sp, 1);
}

TEST(ParallelSection, AStarStandsForAllThatAreNotNamed) {
  const auto sections = [&](int64_t sp) { return ConfigValue::map({{"*", sizes(sp, 2)}, {"image", sizes(3, 4)}}); };
  Recipe recipe = recipe_of({{"encoders", sections(2)}});
  recipe.encoders["photo"];
  recipe.connectors["photo"];
  const WorldLayout layout = read_layout(recipe, 4);
  EXPECT_EQ(layout.encoder("image").sp, 3);
  EXPECT_EQ(layout.encoder("image").shard, 4);
  EXPECT_EQ(layout.encoder("photo").sp, 2);
  EXPECT_EQ(layout.encoder("photo").shard, 2);
  EXPECT_EQ(layout.connector("photo").shard, 0);  // it is about encoders only
  EXPECT_EQ(refusal(recipe, 3).find("recipe.yaml:9:5: parallel.encoders.image.shard: the weights are shared by 4"), 0u);
  recipe.encoders.erase("image");
  EXPECT_EQ(refusal(recipe, 3).find("recipe.yaml:9:5: parallel.encoders.*.shard: the weights are shared by 2"), 0u);

  Mistakes mistakes;
  check_parallel_names(recipe_of({{"encoders", sections(2)}}).tree.at("parallel"), {"backbone", "encoders.images"},
                       mistakes);
  ASSERT_EQ(mistakes.lines().size(), 1u);
  EXPECT_EQ(mistakes.lines()[0],
            "recipe.yaml:9:5: parallel.encoders.image: no component 'encoders.image'; did you mean 'encoders.images'?");
}

TEST(ParallelSection, AttentionByHeadsOrByTiles) {
  const auto section = [](const char* attention, int64_t queries) {
    return ConfigValue::map({{"sp", ConfigValue::integer(4)},
                             {"attention", ConfigValue::string(attention)},
                             {"mesh_queries", ConfigValue::integer(queries)}});
  };
  const auto tile = [&](const char* attention, int64_t queries) {
    return read_layout(recipe_of({{"backbone", section(attention, queries)}}), 4).backbone.tile_queries;
  };
  EXPECT_EQ(tile("ulysses", 0), 0);
  EXPECT_EQ(tile("ring", 0), 1);
  EXPECT_EQ(tile("mesh", 2), 2);
  EXPECT_EQ(tile("mesh", 0), -1);
  ConfigValue measured = section("mesh", 0);
  measured.set("mesh_choice", ConfigValue::string("measured"));
  EXPECT_EQ(read_layout(recipe_of({{"backbone", measured}}), 4).backbone.tile_queries, kLeastTime);
  measured.set("attention", ConfigValue::string("ring"));
  EXPECT_EQ(refusal(recipe_of({{"backbone", measured}}), 4),
            "recipe.yaml:9:5: parallel.backbone.mesh_choice: measured is for attention: mesh with mesh_queries: 0");
  EXPECT_EQ(refusal(recipe_of({{"backbone", section("ring", 2)}}), 4),
            "recipe.yaml:9:5: parallel.backbone.mesh_queries: it belongs to attention: mesh, not to ring");
  const Recipe encoder = recipe_of({{"encoders", ConfigValue::map({{"image", section("mesh", 4)}})}});
  EXPECT_EQ(read_layout(encoder, 8).encoder("image").tile_queries, 4);
}

TEST(ParallelSection, BalanceGroupsDivideTheRanks) {
  const auto balance = [](int64_t group, bool move) {
    return recipe_of({{"balance", ConfigValue::map({{"group", ConfigValue::integer(group)},
                                                    {"move", ConfigValue::boolean(move)}})}});
  };
  const WorldLayout layout = read_layout(balance(2, false), 4);
  EXPECT_EQ(layout.balance, (Balance{2, false, true}));
  EXPECT_EQ(read_layout(recipe_of({}), 4).balance, Balance{});
  EXPECT_EQ(refusal(balance(8, true), 4),
            "recipe.yaml:9:5: parallel.balance.group: items are spread over groups of 8, which does not divide the 4 "
            "ranks of this run; expected one of 1, 2, 4");
  EXPECT_EQ(refusal(balance(512, true), 512),
            "recipe.yaml:9:5: parallel.balance.group: 512 ranks; expected at most 256");
}

TEST(ParallelSection, SizesMustDivideTheRanks) {
  EXPECT_EQ(
      refusal(recipe_of({{"backbone", sizes(4, 0)}}), 6),
      "recipe.yaml:9:5: parallel.backbone.sp: the ranks of a lane are 4, which does not divide the 6 ranks of this "
      "run; expected one of 1, 2, 3, 6");
  EXPECT_NE(refusal(recipe_of({{"backbone", sizes(1, 4)}}), 1).find("parallel.backbone.shard"), std::string::npos);
  EXPECT_NE(refusal(recipe_of({{"encoders", ConfigValue::map({{"image", sizes(1, 3)}})}}), 4)
                .find("parallel.encoders.image.shard: the weights are shared by 3"),
            std::string::npos);
  EXPECT_EQ(refusal(recipe_of({{"backbone", sizes(2, 2)}}), 6), "");
}

TEST(ParallelSection, SharedRowsStayWithinMachinesWhereTheRecipeSaysSo) {
  const auto words = [&](ConfigValue backbone, ConfigValue encoder, bool across, int local_world) {
    const Recipe recipe = recipe_of({{"backbone", std::move(backbone)},
                                     {"encoders", ConfigValue::map({{"image", std::move(encoder)}})},
                                     {"across_machines", ConfigValue::boolean(across)}});
    try {
      check_machines(recipe, read_layout(recipe, 8), local_world);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(words(sizes(4, 0), sizes(1, 0), true, 2), "");
  EXPECT_EQ(words(sizes(4, 0), sizes(1, 0), false, 4), "");
  EXPECT_EQ(words(sizes(8, 0), sizes(8, 0), false, 8), "");  // one machine
  EXPECT_EQ(words(sizes(4, 0), sizes(1, 0), false, 2),
            "recipe.yaml:9:5: parallel.backbone.sp: a lane (sp x tp) is 4 ranks, which do not lie within machines of 2 "
            "as parallel.across_machines: false asks; expected one of 1, 2");
  EXPECT_NE(words(sizes(1, 0), sizes(2, 0), false, 4).find("parallel.encoders.image.sp: an item may lie on any 2 of 8"),
            std::string::npos);
}

// Refused when a backbone with these declarations is built on 8 ranks.
std::string refusal(const Recipe& recipe, const Declarations& declarations) {
  ComponentSpec spec;
  spec.name = "tiny";
  spec.capabilities.axes = {"tp"};
  try {
    check_component(recipe, spec, read_layout(recipe, 8).backbone, 8, declarations, "plugin 'tiny', tiny.so");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

Declarations tiny_declarations() {
  Declarations declarations;
  declarations.component = "backbone";
  TinyBackbone(Declarer(declarations), TinyOptions{});
  return declarations;
}

TEST(ParallelSection, ALaneCannotSplitWhatMixesWhole) {
  const Recipe recipe = recipe_of({{"backbone", sizes(2, 0)}});
  Declarations declarations = tiny_declarations();
  declarations.units[1].mixes = Mixes::attention;
  EXPECT_EQ(refusal(recipe, declarations), "");
  declarations.units[1].mixes = Mixes::whole;
  EXPECT_EQ(refusal(recipe_of({}), declarations), "");
  EXPECT_EQ(refusal(recipe, declarations),
            "recipe.yaml:9:5: parallel.backbone.sp: the ranks of a lane are 2, but unit 'blocks.0' of backbone (plugin "
            "'tiny', tiny.so) mixes a whole sample and cannot be split; expected 1");
}

TEST(ParallelSection, NoMoreRanksThanHeads) {
  Declarations declarations = tiny_declarations();
  declarations.attention = {6, 2, 64};
  EXPECT_EQ(refusal(recipe_of({{"backbone", sizes(4, 0)}}), declarations), "");
  EXPECT_EQ(refusal(recipe_of({{"backbone", sizes(8, 0)}}), declarations),
            "recipe.yaml:9:5: parallel.backbone.sp: a lane is 8 ranks, but attention of backbone has 6 heads; expected "
            "one of 1, 2, 4, or attention: ring");
  ConfigValue ring = sizes(8, 0);
  ring.set("attention", ConfigValue::string("ring"));
  EXPECT_EQ(refusal(recipe_of({{"backbone", ring}}), declarations), "");
}

TEST(ParallelSection, LinesForPeople) {
  const auto model = tiny_model();
  WorldLayout layout;
  layout.world = 4;
  layout.backbone = {2, 2};
  layout.encoders["image"] = {2, 0};
  layout.connectors["image"] = {1, 1};
  EXPECT_EQ(layout_lines(layout, *model),
            (std::vector<std::string>{"encoders.image    4 lanes · items over up to 2 ranks · shard 4",
                                      "connectors.image  4 lanes · a copy on each of 4 ranks",
                                      "backbone          2 lanes, sp 2 · shard 2 x 2 copies"}));
}

}  // namespace
}  // namespace loom::test
