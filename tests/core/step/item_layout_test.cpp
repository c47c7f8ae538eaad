// Where an item may be cut, against brute force; and a plugin's contradictions in words.
#include "core/step/item_layout.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/core/step/random_steps.h"

namespace loom {
namespace {

TEST(ItemLayout, RowsOfPartitionsAtCuts) {
  ItemLayout layout = whole_item(8);
  layout.partitions["half"].lengths = {4};
  EXPECT_EQ(row_at(layout, "", 3), 3);
  EXPECT_EQ(row_at(layout, "half", 4), 2);
  EXPECT_EQ(row_at(layout, "half", 3), -1);
  EXPECT_EQ(row_at(layout, "half", 8), 4);
  EXPECT_EQ(row_at(layout, "", 9), -1);
  EXPECT_EQ(row_at(layout, "", -1), -1);
  EXPECT_TRUE(legal_cut(layout, 2));
  EXPECT_FALSE(legal_cut(layout, 3));  // half a row
  EXPECT_FALSE(legal_cut(layout, 0));
  EXPECT_FALSE(legal_cut(layout, 8));
  EXPECT_EQ(legal_cuts(layout), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(legal_cuts(layout, "half", 2), (std::vector<int64_t>{4}));
  EXPECT_EQ(legal_cuts(layout, "", 4), (std::vector<int64_t>{4}));

  layout.cuts = {2, 6};
  layout.partitions["class"].lengths = {9};
  layout.partitions["class"].cut_rows = {3, 7};
  EXPECT_EQ(row_at(layout, "class", 6), 7);
  EXPECT_EQ(row_at(layout, "class", 4), -1);
  EXPECT_EQ(row_at(layout, "class", 8), 9);
  EXPECT_EQ(legal_cuts(layout), (std::vector<int64_t>{2, 6}));
  layout.whole = true;
  EXPECT_TRUE(legal_cuts(layout).empty());
  EXPECT_FALSE(legal_cut(layout, 2));
}

TEST(ItemLayout, LegalCutsAreThoseThatEachPartitionHasARowFor) {
  int64_t seen = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    test::Draws draws(seed);
    const int64_t rows = draws.between(1, 40), merge = draws.between(1, 3);
    const ItemLayout layout = test::random_layout(rows, draws);
    for (const auto& [outputs, part] : layout.partitions) {
      std::vector<int64_t> expected;
      for (int64_t row = 1; row < rows; ++row) {
        bool legal = layout.cuts.empty() || std::count(layout.cuts.begin(), layout.cuts.end(), row) == 1;
        int64_t output = -1;
        for (const auto& [name, other] : layout.partitions) {
          // By the words of the header: in proportion, or as the partition says.
          int64_t there = -1;
          if (other.cut_rows.empty()) {
            if (row * other.rows() % rows == 0) there = row * other.rows() / rows;
          } else {
            for (size_t i = 0; i < layout.cuts.size(); ++i) there = layout.cuts[i] == row ? other.cut_rows[i] : there;
          }
          legal = legal && there >= 0;
          if (name == outputs) output = there;
        }
        EXPECT_EQ(legal_cut(layout, row), legal) << row << " of " << rows << ", seed " << seed;
        ++(legal ? seen : refused);
        if (legal && output % merge == 0) expected.push_back(row);
      }
      EXPECT_EQ(legal_cuts(layout, outputs, merge), expected) << "seed " << seed << ", partition " << outputs;
    }
  }
  EXPECT_GT(seen, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(ItemLayout, MistakesInWords) {
  const auto mistake = [](const std::function<void(ItemLayout&)>& change) {
    ItemLayout layout = whole_item(8);
    layout.cuts = {2, 5};
    EXPECT_EQ(layout_mistake(layout, {8, 8, 0, {}}), "");
    change(layout);
    return layout_mistake(layout, {8, 8, 0, {}});
  };
  EXPECT_EQ(mistake([](ItemLayout& l) { l.partitions.clear(); }), "there is no default partition ''");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.partitions[""].lengths = {7}; }),
            "the default partition has 7 rows, measure() said 8");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.cuts = {2, 9}; }), "cut 9 lies outside the item's 8 rows");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.cuts = {0}; }), "cut 0 lies outside the item's 8 rows");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.cuts = {5, 5}; }), "cut 5 comes after 5; expected ascending cuts");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.partitions["half"].lengths = {4}; }),
            "partition 'half' has no row at cut 5: its 4 rows to the item's 8; expected another cut, or cut_rows");
  EXPECT_EQ(mistake([](ItemLayout& l) {
              l.partitions["p"] = {{8}, {}, 1, {2}};
            }),
            "partition 'p' has 1 cut_rows; expected one per cut, 2");
  EXPECT_EQ(mistake([](ItemLayout& l) {
              l.partitions["p"] = {{8}, {}, 1, {2, 9}};
            }),
            "cut row 9 lies outside the 8 rows of partition 'p'");
  EXPECT_EQ(mistake([](ItemLayout& l) {
              l.partitions["p"] = {{8}, {}, 1, {6, 5}};
            }),
            "cut row 5 of partition 'p' comes after 6; expected ascending rows");
  EXPECT_EQ(mistake([](ItemLayout& l) {
              l.partitions[""].cut_rows = {2, 6};
            }),
            "cut_rows of the default partition differ from the cuts; expected none");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.permutation = {0, 0, 1, 2, 3, 4, 5, 6}; }),
            "permutation is not one of its 8 output rows");
  EXPECT_EQ(mistake([](ItemLayout& l) { l.partitions[""].position_axes = 0; }), "partition '' has 0 position axes");

  ItemLayout layout = whole_item(8);
  layout.partitions["half"].lengths = {4};
  EXPECT_EQ(outputs_mistake(layout, {8, 4, 0, {}}, "half"), "");
  EXPECT_EQ(outputs_mistake(layout, {8, 4, 0, {}}, ""),
            "partition '', of which its features are rows, has 8 rows, measure() said 4 outputs");
  EXPECT_EQ(outputs_mistake(layout, {8, 4, 0, {}}, "quarter"),
            "there is no partition 'quarter', of which its features are rows");
}

}  // namespace
}  // namespace loom
