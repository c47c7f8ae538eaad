// Every rank gets the plan of rank 0 and exactly the contents that it needs, once each.
#include "core/data/step_feed.h"

#include <gtest/gtest.h>

#include "core/comm/loopback.h"
#include "core/data/batch_builder.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/data/fakes.h"

namespace loom {
namespace {

using test::FakeKit;
using test::FakeSource;
using test::line_of;

WorldLayout layout_of(int world, int sp) {
  WorldLayout out;
  out.world = world;
  out.backbone.sp = sp;
  out.encoders["image"].sp = world;
  return out;
}

LoaderOptions options_of(const WorldLayout& layout) {
  LoaderOptions out;
  out.batch.count = 6;
  out.seed = 3;
  out.layout = layout;
  return out;
}

PreparerOptions divisible(const FakeKit& kit) {
  PreparerOptions out = kit.preparer.options();
  out.modalities.at("image").divisible = true;
  return out;
}

std::string text_of(const std::vector<Piece>& pieces) {
  std::string out;
  for (const Piece& piece : pieces) out += concat(" ", piece.rank, ":", piece.begin, "+", piece.rows);
  return out;
}

std::string text_of(const StepPlan& plan) {
  std::string out =
      concat(plan.step, " ", plan.budget, " ", plan.supervised, " ", plan.tokens, " ", plan.next_position);
  for (const Verdict& verdict : plan.samples) {
    out += concat("\n", verdict.position, " ", verdict.sample, " ", verdict.name, " ", verdict.tokens, " ",
                  verdict.supervised);
    for (const ItemPlace& place : verdict.items) out += concat(" ", place.modality, place.begin, "+", place.slots);
  }
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const PlacedSample& placed : microbatch.samples) out += concat("\n", placed.sample, text_of(placed.pieces));
    for (const auto& [modality, items] : microbatch.items) {
      for (const PlacedItem& placed : items)
        out += concat("\n", modality, " ", placed.sample, ".", placed.item, text_of(placed.pieces));
    }
  }
  return out;
}

// By hand: does a rank hold rows of a sample's text, and which rows of an item does it encode?
bool has_text(const StepPlan& plan, int64_t sample, int rank) {
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const PlacedSample& placed : microbatch.samples) {
      for (const Piece& piece : placed.pieces) {
        if (placed.sample == sample && piece.rank == rank && piece.rows > 0) return true;
      }
    }
  }
  return false;
}
std::set<int64_t> rows_of(const StepPlan& plan, int64_t sample, int64_t item, int rank) {
  std::set<int64_t> out;
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const auto& [modality, items] : microbatch.items) {
      for (const PlacedItem& placed : items) {
        for (const Piece& piece : placed.pieces) {
          if (placed.sample != sample || placed.item != item || piece.rank != rank) continue;
          for (int64_t row = 0; row < piece.rows; ++row) out.insert(piece.begin + row);
        }
      }
    }
  }
  return out;
}

TEST(StepFeed, EveryRankGetsThePlanAndWhatItNeeds) {
  constexpr int64_t kSteps = 4;
  int64_t divided = 0;
  for (const auto& [world, sp] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 1), std::pair(3, 3)}) {
    const WorldLayout layout = layout_of(world, sp);
    FakeKit kit(24);
    const Preparer preparer(divisible(kit));
    const std::shared_ptr<FakeSource> source = std::make_shared<FakeSource>("train.0", 30);
    source->broken = {3};
    std::vector<LoadedStep> expected;
    {
      ThreadPool pool(1);
      LoaderOptions options = options_of(layout);
      options.max_skip_rate = 1;
      StepLoader loader({source}, preparer, pool, options);
      for (int64_t step = 0; step < kSteps; ++step) expected.push_back(loader.next());
    }
    std::vector<std::vector<LoadedStep>> got(static_cast<size_t>(world));
    std::vector<int64_t> sent(static_cast<size_t>(world), 0);
    run_loopback(world, [&](Communicator& comm) {
      ThreadPool pool(1);
      std::unique_ptr<StepLoader> loader;
      LoaderOptions options = options_of(layout);
      options.max_skip_rate = 1;
      const std::vector<std::shared_ptr<Source>> sources{source};
      if (comm.rank() == 0) loader = std::make_unique<StepLoader>(sources, preparer, pool, options);
      StepFeed feed(comm, loader.get(), 24, layout);
      const size_t rank = static_cast<size_t>(comm.rank());
      for (int64_t step = 0; step < kSteps; ++step) got[rank].push_back(feed.next());
      const auto exchanges = comm.counts().find(CommKind::exchange);
      if (exchanges != comm.counts().end()) sent[rank] = exchanges->second.bytes;
    });

    int64_t bytes = 0, missing = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      const LoadedStep& right = expected[step];
      EXPECT_NO_THROW(check_plan(right.plan));
      for (int rank = 0; rank < world; ++rank) {
        const LoadedStep& fed = got[static_cast<size_t>(rank)][step];
        EXPECT_EQ(text_of(fed.plan), text_of(right.plan)) << "rank " << rank << " of " << world;
        EXPECT_EQ(fed.plan.layout, layout);
        EXPECT_TRUE(fed.after == right.after);
        ASSERT_EQ(fed.samples.size(), right.samples.size());
        for (size_t s = 0; s < fed.samples.size(); ++s) {
          const auto sample = static_cast<int64_t>(s);
          const PreparedSample &here = fed.samples[s], &whole = right.samples[s];
          EXPECT_EQ(here.verdict.name, whole.verdict.name);
          int64_t size = 0;
          if (has_text(right.plan, sample, rank)) {
            EXPECT_EQ(here.tokens, whole.tokens);
            EXPECT_EQ(here.supervised, whole.supervised);
            size += static_cast<int64_t>(whole.tokens.size()) * 9;
          } else {
            EXPECT_TRUE(here.tokens.empty()) << "rank " << rank;
            ++missing;
          }
          for (size_t i = 0; i < whole.media.size(); ++i) {
            const std::set<int64_t> rows = rows_of(right.plan, sample, static_cast<int64_t>(i), rank);
            if (rows.empty()) {
              EXPECT_TRUE(here.media.empty() || !here.media[i].defined()) << "rank " << rank;
              continue;
            }
            const Tensor part = whole.media[i].narrow(0, *rows.begin(), static_cast<int64_t>(rows.size()));
            EXPECT_EQ(here.first_row(i), *rows.begin());
            EXPECT_TRUE(at::equal(here.media[i], part));
            size += static_cast<int64_t>(part.nbytes());
            divided += rows.size() < static_cast<size_t>(whole.media[i].size(0));
          }
          EXPECT_EQ(here.absent(), size == 0);
          bytes += rank > 0 ? size : 0;
        }
        // What came is enough for this rank's batches.
        std::vector<const PreparedSample*> samples;
        for (const PreparedSample& sample : fed.samples) samples.push_back(sample.absent() ? nullptr : &sample);
        for (size_t m = 0; m < fed.plan.microbatches.size(); ++m)
          build_batch(fed.plan, m, samples, {{"image", {&kit.encoder, at::kFloat}}}, rank);
      }
    }
    EXPECT_EQ(sent[0], bytes) << "contents are sent once to each rank that needs them";
    for (size_t rank = 1; rank < sent.size(); ++rank) EXPECT_EQ(sent[rank], 0);
    if (sp == 1) {
      EXPECT_GT(missing, 0);
    }
  }
  EXPECT_GT(divided, 0) << "no item was divided";
}

TEST(StepFeed, OneRankIsItsLoader) {
  FakeKit kit;
  ThreadPool pool(1);
  StepLoader loader({std::make_shared<FakeSource>("train.0", 30)}, kit.preparer, pool, options_of({}));
  StepFeed feed(alone(), &loader, 64, {});
  EXPECT_EQ(feed.next().samples.size(), 6u);
  EXPECT_EQ(feed.next().plan.step, 2);
}

TEST(StepFeed, AFailedLoaderIsNamedOnEveryRank) {
  const WorldLayout layout = layout_of(2, 1);
  const std::shared_ptr<FakeSource> source = std::make_shared<FakeSource>("train.0", 4);
  source->broken = {0, 1, 2, 3};
  std::string other;
  const std::string text = line_of<UserError>([&] {
    run_loopback(2, [&](Communicator& comm) {
      FakeKit kit;
      ThreadPool pool(1);
      std::unique_ptr<StepLoader> loader;
      const std::vector<std::shared_ptr<Source>> sources{source};
      if (comm.rank() == 0) loader = std::make_unique<StepLoader>(sources, kit.preparer, pool, options_of(layout));
      StepFeed feed(comm, loader.get(), 64, layout);
      try {
        feed.next();
      } catch (const CommError& problem) {
        other = problem.what();
        throw;
      }
    });
  });
  EXPECT_HAS(text, "cannot decode it");
  EXPECT_HAS(other, "rank 0 failed");
  EXPECT_HAS(other, "cannot decode it");
}

}  // namespace
}  // namespace loom
