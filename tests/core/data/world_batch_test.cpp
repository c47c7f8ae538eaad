// Batches of several ranks: together they are the batch of one rank, and moves bring each row where it belongs.
#include <gtest/gtest.h>

#include <set>

#include "tests/core/checkpoint/files.h"
#include "tests/core/data/worlds.h"

namespace loom {
namespace {

using test::Draws;
using test::Labels;
using test::Places;
using test::places_of;
using test::pointers;
using test::WorldKit;

std::vector<int64_t> values(const Tensor& tensor) {
  EXPECT_EQ(tensor.scalar_type(), at::kLong);
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

// One microbatch on all ranks of its plan, and on one.
struct Microbatch {
  const StepPlan& plan;
  const MicrobatchPlan& lists;
  std::vector<ModelBatch> ranks;
  ModelBatch whole;
};

template <class Check>
void for_random_microbatches(uint64_t seeds, const Check& check) {
  const WorldKit kit;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Draws draws(seed);
    const std::vector<PreparedSample> samples = kit.samples(draws.between(1, 8), draws);
    const StepPlan plan = test::random_plan(samples, 4, draws), one = test::on_one_rank(plan);
    for (size_t m = 0; m < plan.microbatches.size(); ++m) {
      Microbatch microbatch{plan, plan.microbatches[m], {}, build_batch(one, m, pointers(samples), kit.modalities, 0)};
      for (int rank = 0; rank < plan.layout.world; ++rank)
        microbatch.ranks.push_back(build_batch(plan, m, pointers(samples), kit.modalities, rank));
      SCOPED_TRACE(concat("seed ", seed, " microbatch ", m, " of ", plan.layout.world, " ranks"));
      check(microbatch);
      if (testing::Test::HasFailure()) return;
    }
  }
}

Places text_places(const MicrobatchPlan& lists) {
  std::vector<std::vector<Piece>> pieces;
  for (const PlacedSample& placed : lists.samples) pieces.push_back(placed.pieces);
  return places_of(pieces);
}

const ItemPlace& place_of(const StepPlan& plan, const PlacedItem& placed) {
  return plan.samples[static_cast<size_t>(placed.sample)].items[static_cast<size_t>(placed.item)];
}

// Where the items' outputs or slots lie; their rows are in proportion to the media rows.
Places item_places(const StepPlan& plan, const std::vector<PlacedItem>& items, bool slots) {
  std::vector<std::vector<Piece>> all;
  for (const PlacedItem& placed : items) {
    const ItemPlace& place = place_of(plan, placed);
    const int64_t rows = slots ? place.slots : place.meta.outputs;
    std::vector<Piece> pieces = placed.pieces;
    for (Piece& piece : pieces) {
      EXPECT_EQ(piece.begin * rows % place.meta.tokens, 0);
      piece.begin = piece.begin * rows / place.meta.tokens;
      piece.rows = piece.rows * rows / place.meta.tokens;
    }
    all.push_back(pieces);
  }
  return places_of(all);
}

Labels labels(size_t ranks) { return Labels(ranks); }

void put(Labels& out, const std::pair<int, int64_t>& place, int64_t label) {
  std::vector<int64_t>& rows = out[static_cast<size_t>(place.first)];
  if (static_cast<int64_t>(rows.size()) <= place.second) rows.resize(static_cast<size_t>(place.second) + 1, -1);
  rows[static_cast<size_t>(place.second)] = label;
}

TEST(WorldBatch, RanksTogetherHoldTheTextOfOne) {
  int64_t split = 0, elsewhere = 0;
  for_random_microbatches(300, [&](const Microbatch& m) {
    const Places places = text_places(m.lists);
    std::vector<int64_t> rows(m.ranks.size(), 0);
    const std::vector<int64_t> tokens = values(m.whole.tokens);
    std::map<std::pair<int, int64_t>, size_t> global;
    size_t row = 0;
    for (const std::vector<std::pair<int, int64_t>>& sample : places) {
      for (const std::pair<int, int64_t>& place : sample) {
        const ModelBatch& batch = m.ranks[static_cast<size_t>(place.first)];
        ASSERT_LT(place.second, batch.tokens.size(0));
        EXPECT_EQ(batch.tokens[place.second].item<int64_t>(), tokens[row]);
        global[place] = row++;
        ++rows[static_cast<size_t>(place.first)];
      }
    }
    std::map<size_t, int64_t> targets, expected;
    for (size_t rank = 0; rank < m.ranks.size(); ++rank) {
      const ModelBatch& batch = m.ranks[rank];
      EXPECT_EQ(batch.tokens.size(0), rows[rank]);
      EXPECT_EQ(batch.text.at("").rows(), rows[rank]);
      const std::vector<int64_t> loss_rows = values(batch.loss_rows), wanted = values(batch.targets);
      ASSERT_EQ(loss_rows.size(), wanted.size());
      EXPECT_TRUE(std::is_sorted(loss_rows.begin(), loss_rows.end()));
      for (size_t i = 0; i < wanted.size(); ++i) {
        const bool first = targets.emplace(global.at({static_cast<int>(rank), loss_rows[i]}), wanted[i]).second;
        EXPECT_TRUE(first) << "a target on two ranks";
        elsewhere += loss_rows[i] + 1 == rows[rank] && m.ranks.size() > 1;
      }
      split += static_cast<int64_t>(batch.text.at("").splits.size());
    }
    const std::vector<int64_t> loss_rows = values(m.whole.loss_rows), wanted = values(m.whole.targets);
    for (size_t i = 0; i < wanted.size(); ++i) expected[static_cast<size_t>(loss_rows[i])] = wanted[i];
    EXPECT_EQ(targets, expected);
  });
  EXPECT_GT(split, 200);
  EXPECT_GT(elsewhere, 50) << "no target lay behind the end of a piece";
}

TEST(WorldBatch, RanksTogetherHoldTheMediaOfOne) {
  int64_t moved = 0, empty = 0;
  for_random_microbatches(150, [&](const Microbatch& m) {
    for (const ModelBatch& batch : m.ranks) EXPECT_EQ(batch.items.size(), m.lists.items.size());
    for (const auto& [modality, items] : m.lists.items) {
      std::vector<std::vector<Piece>> pieces;
      for (const PlacedItem& placed : items) pieces.push_back(placed.pieces);
      std::vector<int64_t> rows(m.ranks.size(), 0);
      int64_t row = 0;
      for (const std::vector<std::pair<int, int64_t>>& item : places_of(pieces)) {
        for (const auto& [rank, local] : item) {
          const Tensor& media = m.ranks[static_cast<size_t>(rank)].pass(modality).media;
          ASSERT_LT(local, media.size(0));
          EXPECT_TRUE(at::equal(media[local], m.whole.pass(modality).media[row++]));
          ++rows[static_cast<size_t>(rank)];
          moved += rank > 0;
        }
      }
      for (size_t rank = 0; rank < m.ranks.size(); ++rank) {
        const EncoderBatch& batch = m.ranks[rank].pass(modality);
        EXPECT_EQ(batch.media.size(0), rows[rank]);
        EXPECT_EQ(batch.media.size(1), test::kFakeMediaWidth);
        EXPECT_EQ(batch.encoder.at("").rows(), rows[rank]);
        EXPECT_EQ(batch.encoder.size(), m.whole.pass(modality).encoder.size());
        EXPECT_EQ(batch.connector.size(), 2u);
        empty += rows[rank] == 0;
      }
    }
  });
  EXPECT_GT(moved, 1000);
  EXPECT_GT(empty, 50);
}

TEST(WorldBatch, MovesBringEveryRowWhereItBelongs) {
  int64_t reordered = 0, identities = 0, remote = 0, streamed = 0;
  for_random_microbatches(150, [&](const Microbatch& m) {
    const Places text = text_places(m.lists);
    std::map<int64_t, size_t> sample_at;
    for (size_t i = 0; i < m.lists.samples.size(); ++i) sample_at[m.lists.samples[i].sample] = i;
    for (const auto& [modality, items] : m.lists.items) {
      std::vector<const RowMove*> to_connector, to_backbone;
      for (const ModelBatch& batch : m.ranks) {
        const EncoderBatch& here = batch.pass(modality);
        to_connector.push_back(&here.to_connector);
        to_backbone.push_back(&batch.landing(modality).to_backbone);
        EXPECT_EQ(here.to_connector.identity, to_connector[0]->identity) << "ranks disagree";
        EXPECT_EQ(batch.landing(modality).to_backbone.identity, to_backbone[0]->identity) << "ranks disagree";
        remote += here.to_connector.route.remote() + batch.landing(modality).to_backbone.route.remote();
      }
      // A row's label is its item in the list and its natural row in the item.
      Labels features = labels(m.ranks.size()), natural = features, embeddings = features;
      const Places outputs = item_places(m.plan, items, false), slots = item_places(m.plan, items, true);
      for (size_t i = 0; i < items.size(); ++i) {
        const int64_t count = static_cast<int64_t>(outputs[i].size());
        for (int64_t row = 0; row < count; ++row) {
          const int64_t there = modality == "clip" ? (row + 1) % count : row;  // as PooledEncoder says
          put(features, outputs[i][static_cast<size_t>(row)], static_cast<int64_t>(i) * 1000 + there);
          put(natural, outputs[i][static_cast<size_t>(row)], static_cast<int64_t>(i) * 1000 + row);
        }
        for (size_t slot = 0; slot < slots[i].size(); ++slot)
          put(embeddings, slots[i][slot], static_cast<int64_t>(i * 1000 + slot));
      }
      EXPECT_EQ(test::moved(to_connector, features), natural);
      reordered += features != natural;
      identities += to_backbone[0]->identity;

      const Labels arrived = test::moved(to_backbone, embeddings);
      // By rank and row of the backbone's stream: the label that belongs there.
      std::map<std::pair<int, int64_t>, int64_t> expected, got;
      const bool stream = modality == "clip";
      Places rows = text;
      if (stream) {
        std::vector<std::vector<Piece>> pieces;
        for (const PlacedSample& placed : m.lists.samples) {
          int64_t total = 0;
          for (const ItemPlace& place : m.plan.samples[static_cast<size_t>(placed.sample)].items)
            total += place.modality == modality ? place.slots : 0;
          const int64_t count = static_cast<int64_t>(placed.pieces.size());
          std::vector<Piece>& some = pieces.emplace_back();
          for (int64_t p = 0; p < count; ++p) {
            const int64_t begin = total * p / count;
            some.push_back({placed.pieces[static_cast<size_t>(p)].rank, begin, total * (p + 1) / count - begin});
          }
        }
        rows = places_of(pieces);
      }
      for (size_t i = 0; i < items.size(); ++i) {
        const ItemPlace& place = place_of(m.plan, items[i]);
        int64_t begin = place.begin;
        if (stream) {
          begin = 0;
          for (int64_t other = 0; other < items[i].item; ++other) {
            const ItemPlace& before = place_of(m.plan, {items[i].sample, other, {}});
            begin += before.modality == modality ? before.slots : 0;
          }
          streamed += place.slots;
        }
        for (int64_t slot = 0; slot < place.slots; ++slot)
          expected[rows[sample_at.at(items[i].sample)].at(static_cast<size_t>(begin + slot))] =
              static_cast<int64_t>(i) * 1000 + slot;
      }
      for (size_t rank = 0; rank < m.ranks.size(); ++rank) {
        const std::vector<int64_t> to = values(m.ranks[rank].landing(modality).slots);
        ASSERT_EQ(to.size(), arrived[rank].size()) << "rank " << rank;
        for (size_t i = 0; i < to.size(); ++i) {
          EXPECT_TRUE(got.emplace(std::pair(static_cast<int>(rank), to[i]), arrived[rank][i]).second);
        }
        if (stream) {
          EXPECT_EQ(m.ranks[rank].text.at("clips").rows(), static_cast<int64_t>(to.size()));
        }
      }
      EXPECT_EQ(got, expected);
    }
    // The stream is there on every rank of every microbatch, with one segment per sample or piece of it.
    for (const ModelBatch& batch : m.ranks) EXPECT_EQ(batch.text.count("clips"), 1u);
  });
  EXPECT_GT(reordered, 50);
  EXPECT_GT(identities, 10);
  EXPECT_GT(remote, 100);
  EXPECT_GT(streamed, 500);
}

TEST(WorldBatch, SamplesAndTheirStreamHaveEqualNumbers) {
  int64_t whole = 0, divided = 0, nothing = 0;
  for_random_microbatches(150, [&](const Microbatch& m) {
    for (const ModelBatch& batch : m.ranks) {
      const Segments &text = batch.text.at(""), &clips = batch.text.at("clips");
      // What attention needs to find: a divided sample's stream is divided over the same ranks, without rows or not.
      ASSERT_EQ(clips.splits.size(), text.splits.size());
      std::set<int64_t> split;
      for (size_t i = 0; i < text.splits.size(); ++i) {
        EXPECT_EQ(clips.splits[i].id, text.splits[i].id);
        split.insert(text.splits[i].id);
        nothing += clips.splits[i].rows == 0;
        ++divided;
      }
      for (size_t s = 0; s < text.ids.size(); ++s) {
        if (split.count(text.ids[s]) > 0) continue;
        const auto found = std::find(clips.ids.begin(), clips.ids.end(), text.ids[s]);
        ASSERT_NE(found, clips.ids.end()) << "a whole sample without its stream";
        EXPECT_EQ(clips.keys[static_cast<size_t>(found - clips.ids.begin())].sample, text.keys[s].sample);
        ++whole;
      }
    }
  });
  EXPECT_GT(whole, 100);
  EXPECT_GT(divided, 100);
  EXPECT_GT(nothing, 50);
}

TEST(WorldBatch, ContentsOfOtherRanksAreNotNeeded) {
  const WorldKit kit;
  int64_t left_out = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Draws draws(seed);
    const std::vector<PreparedSample> samples = kit.samples(6, draws);
    const StepPlan plan = test::random_plan(samples, 4, draws);
    for (int rank = 0; rank < plan.layout.world; ++rank) {
      std::vector<const PreparedSample*> mine;
      for (size_t s = 0; s < samples.size(); ++s) {
        bool needed = false;
        const auto look = [&](int64_t sample, const std::vector<Piece>& pieces) {
          for (const Piece& piece : pieces)
            needed = needed || (sample == static_cast<int64_t>(s) && piece.rank == rank && piece.rows > 0);
        };
        for (const MicrobatchPlan& lists : plan.microbatches) {
          for (const PlacedSample& placed : lists.samples) look(placed.sample, placed.pieces);
          for (const auto& [modality, items] : lists.items) {
            for (const PlacedItem& placed : items) look(placed.sample, placed.pieces);
          }
        }
        mine.push_back(needed ? &samples[s] : nullptr);
        left_out += !needed;
      }
      for (size_t m = 0; m < plan.microbatches.size(); ++m) {
        const ModelBatch batch = build_batch(plan, m, mine, kit.modalities, rank);
        EXPECT_TRUE(at::equal(batch.tokens, build_batch(plan, m, pointers(samples), kit.modalities, rank).tokens));
      }
    }
  }
  EXPECT_GT(left_out, 50);
}

TEST(WorldBatch, AnItemCutWhereItMustNotBeIsRefused) {
  WorldKit kit;
  const PreparedSample sample =
      kit.preparer->prepare(RawSample{1, "train.0#4", {SamplePart::make_media(test::fake_picture(2, 4, 1))}});
  WorldLayout layout;
  layout.world = 2;
  StepPlan plan = make_step_plan(1, {sample.verdict}, 96, 0, layout);
  const auto refusal = [&](int64_t row) {
    plan.microbatches[0].items.at("image")[0].pieces = {{0, 0, row}, {1, row, 8 - row}};
    std::string text;
    for (int rank = 0; rank < 2; ++rank) {  // on every rank alike
      const std::string here =
          test::line_of<PluginError>([&] { build_batch(plan, 0, {&sample}, kit.modalities, rank); });
      EXPECT_TRUE(rank == 0 || here == text);
      text = here;
    }
    return text;
  };
  EXPECT_EQ(refusal(3),  // two outputs are one slot
            "encoders.image: layout() of an item of train.0#4: the plan divides it at row 3 of 8; expected one of its "
            "legal cuts, nearest 2");
  plan.samples[0].items[0].cuts = {3};
  EXPECT_HAS(refusal(4), "expected one of its legal cuts, nearest 3");
  plan.samples[0].items[0].cuts.clear();
  EXPECT_HAS(refusal(4), "the plan divides it at row 4 of 8; expected it whole");

  class Whole : public test::FakeEncoder {
   public:
    ItemLayout layout(const ItemMeta& meta) const override {
      ItemLayout out = whole_item(meta.tokens);
      out.whole = true;
      return out;
    }
  } whole;
  kit.modalities["image"].encoder = &whole;
  plan.samples[0].items[0].cuts = {4};
  EXPECT_HAS(refusal(4), "which the layout does not allow any more");
}

}  // namespace
}  // namespace loom
