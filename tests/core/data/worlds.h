#pragma once
// Random samples of two modalities, one in the text and one with a stream of its own, and random plans of them on
// several ranks; what moves carry from rank to rank, followed by hand.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/data/batch_builder.h"
#include "tests/core/data/fakes.h"
#include "tests/core/step/random_steps.h"

namespace loom::test {

// Two media rows become one output; outputs leave in an order that is not its own inverse.
class PooledEncoder : public FakeEncoder {
 public:
  ItemMeta measure(const MediaInfo& info) const override {
    return {2 * info.height * info.width, info.height * info.width, 1, {info.height, info.width}};
  }
  ItemLayout layout(const ItemMeta& meta) const override {
    ItemLayout out = whole_item(meta.tokens);
    out.partitions["pooled"].lengths = {meta.outputs};
    for (int64_t i = 0; i < meta.outputs; ++i) out.permutation.push_back((i + 1) % meta.outputs);
    return out;
  }
  Tensor prepare(const Media& media, const Philox& random) const override {
    return FakeEncoder::prepare(media, random).repeat_interleave(2, 0);
  }
};

struct WorldKit {
  static constexpr int64_t kMerge = 2;

  WorldKit() : tokenizer(make_tokenizer(ConfigValue::string("bytes"))) {
    PreparerOptions options{{}, tokenizer.get(), 96, OverLong::error, 5};
    ModalityUse& picture = options.modalities["image"];
    picture.encoder = &image;
    picture.merge = kMerge;
    picture.divisible = true;
    ModalityUse& clips = options.modalities["clip"];
    clips.encoder = &clip;
    clips.divisible = true;
    clips.outputs = "pooled";
    clips.in_text = false;
    preparer = std::make_unique<Preparer>(options);
    modalities["image"] = {&image, at::kFloat};
    modalities["clip"] = {&clip, at::kFloat, "pooled", "clips"};
  }

  std::vector<PreparedSample> samples(int64_t count, Draws& draws) const {
    std::vector<PreparedSample> out;
    for (int64_t i = 0; i < count; ++i) {
      RawSample raw{static_cast<uint64_t>(100 + i), concat("s", i), {}};
      const int64_t parts = draws.between(1, 5);
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t kind = draws.below(4);
        if (kind < 2) {
          std::string text;
          for (int64_t c = draws.below(8); c > 0; --c) text += static_cast<char>('a' + draws.below(26));
          raw.parts.push_back(SamplePart::make_text(text, kind == 1));
        } else {
          const int64_t height = draws.between(1, 4), width = 2 * draws.between(1, 2);
          raw.parts.push_back(
              SamplePart::make_media(fake_picture(height, width, draws.below(250), kind == 2 ? "image" : "clip")));
        }
      }
      out.push_back(preparer->prepare(raw));
    }
    return out;
  }

  FakeEncoder image;
  PooledEncoder clip;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Preparer> preparer;
  BatchModalities modalities;
};

inline std::vector<const PreparedSample*> pointers(const std::vector<PreparedSample>& samples) {
  std::vector<const PreparedSample*> out;
  for (const PreparedSample& sample : samples) out.push_back(&sample);
  return out;
}

// As the planner makes it, or with pieces anywhere and items in any order.
inline StepPlan random_plan(const std::vector<PreparedSample>& samples, int world, Draws& draws) {
  std::vector<Verdict> verdicts;
  for (const PreparedSample& sample : samples) verdicts.push_back(sample.verdict);
  WorldLayout layout = random_world(world, {"image", "clip"}, draws);
  StepPlan plan = make_step_plan(1, std::move(verdicts), 96, 0, layout);
  if (draws.chance(0.3)) return plan;
  for (MicrobatchPlan& microbatch : plan.microbatches) {
    for (PlacedSample& placed : microbatch.samples) {
      const int64_t tokens = plan.samples[static_cast<size_t>(placed.sample)].tokens;
      placed.pieces = random_pieces(tokens, count_up(1, tokens), layout.world, draws);
    }
    for (auto& [modality, items] : microbatch.items) {
      draws.shuffle(items);
      for (PlacedItem& placed : items) {
        const ItemPlace& place =
            plan.samples[static_cast<size_t>(placed.sample)].items[static_cast<size_t>(placed.item)];
        placed.pieces = random_pieces(place.meta.tokens, place.cuts, layout.world, draws);
      }
    }
  }
  check_plan(plan);
  return plan;
}

// The same lists with every piece on one rank.
inline StepPlan on_one_rank(StepPlan plan) {
  plan.layout = {};
  for (MicrobatchPlan& microbatch : plan.microbatches) {
    for (PlacedSample& placed : microbatch.samples)
      placed.pieces = {{0, 0, plan.samples[static_cast<size_t>(placed.sample)].tokens}};
    for (auto& [modality, items] : microbatch.items) {
      for (PlacedItem& placed : items) {
        const std::vector<ItemPlace>& places = plan.samples[static_cast<size_t>(placed.sample)].items;
        placed.pieces = {{0, 0, places[static_cast<size_t>(placed.item)].meta.tokens}};
      }
    }
  }
  return plan;
}

// Where rows lie: by item of a list, by row of the item, (rank, row of the rank's tensor); counted by hand.
using Places = std::vector<std::vector<std::pair<int, int64_t>>>;
inline Places places_of(const std::vector<std::vector<Piece>>& pieces) {
  std::map<int, int64_t> filled;
  Places out;
  for (const std::vector<Piece>& some : pieces) {
    out.emplace_back();
    for (const Piece& piece : some) {
      for (int64_t i = 0; i < piece.rows; ++i) out.back().emplace_back(piece.rank, filled[piece.rank]++);
    }
  }
  return out;
}

using Labels = std::vector<std::vector<int64_t>>;  // by rank, by row

inline std::vector<int64_t> elements_of(const Patch& patch) {
  EXPECT_EQ(patch.size.size(), 1u);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < patch.size.at(0); ++i) out.push_back(patch.offset + i * patch.stride.at(0));
  return out;
}

// What a move makes of labelled rows, following each rank's own route; -1 where nothing arrives.
inline Labels moved(const std::vector<const RowMove*>& moves, const Labels& source) {
  if (moves[0]->identity) return source;
  Labels out;
  for (const RowMove* move : moves) out.emplace_back(static_cast<size_t>(move->rows), -1);
  std::map<std::pair<int, int>, std::vector<int64_t>> mail;  // (from, to)
  for (size_t rank = 0; rank < moves.size(); ++rank) {
    for (const PeerPatches& send : moves[rank]->route.sends) {
      for (const Patch& patch : send.patches) {
        for (const int64_t row : elements_of(patch))
          mail[{static_cast<int>(rank), send.peer}].push_back(source[rank].at(static_cast<size_t>(row)));
      }
    }
    for (const auto& [from, to] : moves[rank]->route.local) {
      const std::vector<int64_t> sources = elements_of(from), destinations = elements_of(to);
      for (size_t i = 0; i < sources.size(); ++i) {
        out[rank].at(static_cast<size_t>(destinations[i])) = source[rank].at(static_cast<size_t>(sources[i]));
      }
    }
  }
  for (size_t rank = 0; rank < moves.size(); ++rank) {
    for (const PeerPatches& receive : moves[rank]->route.receives) {
      const std::vector<int64_t>& letter = mail[{receive.peer, static_cast<int>(rank)}];
      size_t next = 0;
      for (const Patch& patch : receive.patches) {
        for (const int64_t row : elements_of(patch)) out[rank].at(static_cast<size_t>(row)) = letter.at(next++);
      }
      EXPECT_EQ(next, letter.size()) << "rank " << receive.peer << " sends more than rank " << rank << " expects";
      mail.erase({receive.peer, static_cast<int>(rank)});
    }
  }
  EXPECT_TRUE(mail.empty()) << "a message that nobody receives";
  return out;
}

}  // namespace loom::test
