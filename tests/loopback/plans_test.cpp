// A thousand random plans, forward and backward on four ranks, without a hang: ranks, microbatches and modalities
// missing at random, pieces anywhere, and delays that change the order of events.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/loopback/harness.h"

namespace loom::test {
namespace {

constexpr int kWorld = 4;

struct Totals {
  int64_t plans = 0, microbatches = 0, without_rows = 0, without_items = 0, skipped = 0, split = 0;
};

struct Prepared {
  std::vector<PreparedSample> samples;
  StepPlan plan;
};

std::vector<Prepared> prepare(const ModelSpec& spec, int64_t count, uint64_t seed, Totals& totals) {
  const auto model = make_model(spec, {}, {}, nullptr);
  std::vector<Prepared> out;
  for (int64_t i = 0; i < count; ++i) {
    const Philox random({seed, Purpose::sample, 0, 0, static_cast<uint64_t>(i)});
    DataChoice data;
    data.seed = seed * 10000 + static_cast<uint64_t>(i);
    data.samples = static_cast<int64_t>(random.below(6, 0));  // with none at all, too
    data.mix = static_cast<Mix>(1 + random.below(3, 1));
    data.longest_text = 5;
    LayoutChoice layout;
    layout.world = kWorld;
    layout.encoder_sp = 1 << random.below(3, 2);
    layout.backbone_sp = 1 << random.below(3, 3);
    layout.placing = static_cast<Placing>(1 + random.below(4, 4));
    layout.microbatches = 1 + static_cast<int64_t>(random.below(3, 5));
    layout.seed = data.seed;
    Prepared p;
    p.samples = random_samples(*model, data, 1);
    p.plan = random_plan(p.samples, i + 1, layout, world_layout(*model, layout));
    if (p.plan.microbatches.empty()) p.plan.microbatches.emplace_back();
    for (const MicrobatchPlan& microbatch : p.plan.microbatches) {
      ++totals.microbatches;
      totals.without_rows += microbatch.samples.empty() ? 1 : 0;
      totals.without_items += microbatch.items.empty() ? 1 : 0;
    }
    ++totals.plans;
    out.push_back(std::move(p));
  }
  return out;
}

void run_all(const ModelSpec& spec, const BindChoice& bind, int shard, const std::vector<Prepared>& prepared,
             uint64_t delays, Totals& totals) {
  SCOPED_TRACE(spec.name);
  std::vector<TapeCounters> counters(kWorld);
  WorldLayout layout;
  layout.world = kWorld;
  layout.backbone.shard = shard;
  for (const EncoderChoice& choice : spec.encoders) layout.encoders[choice.modality].shard = shard == 2 ? 1 : 2;
  run_loopback(kWorld, {60, 1, delays}, [&](Communicator& comm) {
    const auto model = make_model(spec, bind, layout, &comm);
    TapeCounters& mine = counters[static_cast<size_t>(comm.rank())];
    for (const Prepared& p : prepared) {
      model->zero_gradients();
      for (size_t m = 0; m < p.plan.microbatches.size(); ++m) {
        const ModelBatch batch = rank_batch(p.plan, m, p.samples, *model, comm.rank());
        const MicrobatchResult result = model->forward_backward(batch, p.plan.step, denominators_of(p.plan));
        LOOM_CHECK(std::isfinite(result.loss_sum), "the loss of plan ", p.plan.step, " is ", result.loss_sum);
        mine += result.counters;
      }
      model->finish_gradients();
      model->end_step();
    }
  });
  for (const TapeCounters& c : counters) {
    totals.skipped += c.units_skipped_empty;
    totals.split += c.services.split_segments;
  }
}

TEST(LoopbackPlans, AThousandOnFourRanks) {
  Totals totals;
  const char* models[] = {"two_encoders", "context_and_text", "mean", "deepstack", "statistics"};
  uint64_t seed = 1;
  for (const char* name : models) {
    const ModelSpec& spec = zoo_model(name);
    BindChoice bind;
    bind.dtype = at::kFloat;
    bind.recompute = seed % 2 == 0;
    const int shard = seed % 3 == 0 ? 2 : 0;
    run_all(spec, bind, shard, prepare(spec, 180, seed, totals), 0, totals);
    run_all(spec, bind, shard, prepare(spec, 20, seed + 100, totals), seed, totals);
    ++seed;
  }
  std::cout << "  " << totals.plans << " plans, " << totals.microbatches << " microbatches (" << totals.without_rows
            << " without any rows, " << totals.without_items << " without items), " << totals.skipped
            << " units skipped for want of rows, " << totals.split << " split segments\n";
  EXPECT_GE(totals.plans, 1000);
  EXPECT_GT(totals.without_rows, 50);
  EXPECT_GT(totals.without_items, totals.without_rows);
  EXPECT_GT(totals.skipped, 1000);
  EXPECT_GT(totals.split, 1000);
}

}  // namespace
}  // namespace loom::test
