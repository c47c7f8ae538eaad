// Plans of several ranks against real ranks: every byte that is sent, the memory of each, and what is refused.
#include "pipelines/plan_world.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/dry.h"
#include "core/comm/loopback.h"
#include "core/parallel/memory_meter.h"
#include "core/train/trainer.h"
#include "pipelines/parallel_section.h"
#include "tests/pipelines/plan_steps.h"

namespace loom::test {
namespace {

constexpr const char* kRecipe = R"(
name: world
plugins: [PLUGINS]
model:
  encoders:
    image: {plugin: vit, image_size: 56, patch: 7, width: 96, depth: 2, heads: 4}
  connectors:
    image: {plugin: mlp, hidden: 128}
  backbone: {plugin: llama, width: 128, depth: 2, heads: 4, kv_heads: 2, ffn: 352}
data: {budget: 256}
train: {lr: 1e-3, batch: 40 samples, threads: 1}
)";

constexpr const char* kTwoEncoders = R"(
name: world
plugins: [PLUGINS]
model:
  encoders:
    image: {plugin: vit, image_size: 56, patch: 7, width: 96, depth: 2, heads: 4}
    detail: {plugin: vit, image_size: 28, patch: 7, width: 64, depth: 1, heads: 2}
  connectors:
    image: {plugin: mlp, hidden: 128}
    detail: {plugin: mlp, hidden: 64}
  backbone: {plugin: llama, width: 128, depth: 2, heads: 4, kv_heads: 2, ffn: 352}
data: {budget: 256}
train: {lr: 1e-3, batch: 40 samples, threads: 1}
)";

struct Layout {
  const char* name;
  int world;
  std::string parallel;  // the section
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {"dp", 2, "{encoders: {image: {shard: 1}}, connectors: {image: {shard: 1}}, backbone: {shard: 1}}"},
      {"shard", 2, "{}"},
      {"shard", 4, "{}"},
      {"hsdp 2x2", 4, "{encoders: {image: {shard: 2}}, connectors: {image: {shard: 2}}, backbone: {shard: 2}}"},
      {"sp 2", 2, "{encoders: {image: {sp: 2}}, backbone: {sp: 2}}"},
      {"sp 2, hsdp", 4, "{encoders: {image: {sp: 4, shard: 1}}, backbone: {sp: 2, shard: 2}}"},
      {"sp 4", 4, "{encoders: {image: {sp: 2, shard: 2}}, connectors: {image: {shard: 1}}, backbone: {sp: 4}}"},
      {"tp 2", 2, "{encoders: {image: {tp: 2}}, connectors: {image: {tp: 2}}, backbone: {tp: 2}}"},
      {"tp 2, sp 2", 4, "{encoders: {image: {tp: 2, sp: 2}}, backbone: {tp: 2, sp: 2}}"},
      {"tp, hsdp", 8, "{encoders: {image: {tp: 4, shard: 1}}, backbone: {tp: 2, shard: 2}}"},
  };
  return all;
}

std::string recipe_of(const TempFolder& folder, std::string text, const std::string& parallel) {
  return recipe_file(folder, std::move(text) + (parallel.empty() ? "" : "parallel: " + parallel + "\n"));
}

// Samples with several items, one and none, long and short, packed for the job's layout. Contents without values.
LoadedStep uneven_step(const Job& job, int64_t samples, int64_t budget) {
  LoadedStep step;
  std::vector<Verdict> verdicts;
  for (int64_t i = 0; i < samples; ++i) {
    std::vector<ItemPlace> items;
    for (const std::string& modality : job.model->modalities()) {
      for (int64_t k = 0; k < (i + static_cast<int64_t>(modality.size())) % 3; ++k)
        items.push_back(*guess_item(job, modality));
    }
    if (i % 4 == 3) items.clear();
    PreparedSample sample = plan_sample(job, std::move(items), 17 + 11 * (i % 5), 3 + 2 * (i % 5));
    sample.verdict.sample = sample.verdict.position = static_cast<uint64_t>(i);
    verdicts.push_back(sample.verdict);
    step.samples.push_back(std::move(sample));
  }
  step.plan = make_step_plan(1, std::move(verdicts), budget, 0, job.layout);
  return step;
}

struct Real {
  Traffic traffic;
  int64_t peak = 0;
  bool finite = false;
};

// The second of two real steps on every rank. The memory of `counted` alone is metered.
std::vector<Real> real_step(const std::string& recipe, int world, const LoadedStep& step, int counted) {
  install_memory_meter();
  const int64_t before = memory_use(c10::DeviceType::CPU).live;
  std::vector<Real> out(static_cast<size_t>(world));
  run_loopback(world, [&](Communicator& comm) {
    const CountMemory count(comm.rank() == counted);
    const Job job = make_job(recipe, {}, comm);
    const std::unique_ptr<Optimizer> optimizer =
        make_optimizer(read_optimizer(job.recipe.train()), job.model->buffers());
    Trainer trainer(*job.model, *optimizer, {});
    const LoadedStep mine = with_values(step, job.model->backbone().vocab());
    trainer.step(mine);
    comm.barrier("test: between steps", world_group(world));
    comm.reset_counts();
    const StepStats stats = trainer.step(mine);
    out[static_cast<size_t>(comm.rank())] = {comm.traffic(), stats.peak_bytes - before, std::isfinite(stats.loss)};
  });
  return out;
}

RankPlan dry_step(const Job& job, const LoadedStep& step, int rank) {
  DryCommunicator comm(rank, job.layout.world);
  return plan_rank(job, comm, {step});
}

std::string words(const CommSite& site) {
  return concat(site.component, " ", comm_axis_name(site.axis), " ", comm_kind_name(site.kind));
}

void expect_same(const Traffic& real, const Traffic& dry, const std::string& where) {
  for (const auto& [site, count] : real) {
    const auto found = dry.find(site);
    ASSERT_NE(found, dry.end()) << where << ": " << words(site);
    EXPECT_EQ(found->second.bytes, count.bytes) << where << ": " << words(site);
    EXPECT_EQ(found->second.calls, count.calls) << where << ": " << words(site);
  }
  EXPECT_EQ(real.size(), dry.size()) << where;
}

int64_t bytes_on(const Traffic& traffic, CommAxis axis) {
  int64_t bytes = 0;
  for (const auto& [site, count] : traffic) bytes += site.axis == axis ? count.bytes : 0;
  return bytes;
}

TEST(PlanWorld, EveryByteOfARealStepIsPredicted) {
  std::map<CommAxis, int64_t> seen;
  int64_t steps = 0;
  const auto check = [&](const char* text, const Layout& layout) {
    const TempFolder folder;
    const std::string recipe = recipe_of(folder, text, layout.parallel);
    DryCommunicator first(0, layout.world);
    const Job job = make_dry_job(recipe, {}, first);
    for (const int64_t samples : {2, 13}) {
      const LoadedStep step = uneven_step(job, samples, 256);
      const std::vector<Real> real = real_step(recipe, layout.world, step, -1);
      for (int rank = 0; rank < layout.world; ++rank) {
        const Traffic dry = dry_step(job, step, rank).steps.front().traffic;
        const Traffic& sent = real[static_cast<size_t>(rank)].traffic;
        expect_same(sent, dry, concat(layout.name, ", rank ", rank, " of ", layout.world, ", ", samples, " samples"));
        for (const auto& [site, count] : sent) seen[site.axis] += count.bytes;
        ++steps;
      }
    }
  };
  for (const Layout& layout : layouts()) check(kRecipe, layout);
  check(kTwoEncoders, {"two encoders", 4,
                       "{encoders: {image: {sp: 2, shard: 2}, detail: {shard: 1}}, connectors: {detail: {shard: 2}}, "
                       "backbone: {sp: 2, shard: 4}}"});
  for (const CommAxis axis :
       {CommAxis::world, CommAxis::shard, CommAxis::replicate, CommAxis::sp, CommAxis::tp, CommAxis::bridge})
    EXPECT_GT(seen[axis], 0) << "no case with bytes along " << comm_axis_name(axis);
  std::printf("%lld rank steps: %s bytes, all predicted\n", static_cast<long long>(steps),
              with_commas(seen[CommAxis::world] + seen[CommAxis::shard] + seen[CommAxis::replicate] +
                          seen[CommAxis::sp] + seen[CommAxis::tp] + seen[CommAxis::bridge])
                  .c_str());
}

TEST(PlanWorld, ThePeakOfARankIsThatOfARealOne) {
  std::printf("%-12s %6s %12s %12s %9s\n", "layout", "rank", "predicted", "measured", "ratio");
  for (const Layout& layout : layouts()) {
    const TempFolder folder;
    const std::string recipe = recipe_of(folder, kRecipe, layout.parallel);
    DryCommunicator first(0, layout.world);
    const Job job = make_dry_job(recipe, {}, first);
    const LoadedStep step = uneven_step(job, 13, 256);
    for (int rank = 0; rank < layout.world; ++rank) {
      const int64_t predicted = dry_step(job, step, rank).plan.peak;
      const Real real = real_step(recipe, layout.world, step, rank)[static_cast<size_t>(rank)];
      EXPECT_TRUE(real.finite);
      const double ratio = static_cast<double>(predicted) / static_cast<double>(real.peak);
      std::printf("%-12s %3d/%-2d %12s %12s %9.5f\n", layout.name, rank, layout.world, with_commas(predicted).c_str(),
                  with_commas(real.peak).c_str(), ratio);
      EXPECT_NEAR(ratio, 1, 0.05) << layout.name << ", rank " << rank;
      EXPECT_NEAR(ratio, 1, 0.001) << layout.name << ", rank " << rank << ": other allocations than a real step's";
    }
  }
}

TEST(PlanWorld, StepsOfManyMicrobatchesFollowFromOneAndTwo) {
  const TempFolder folder;
  const std::string recipe = recipe_of(folder, kRecipe, "{backbone: {sp: 2, shard: 2}, balance: {pack: false}}");
  DryCommunicator first(0, 4);
  const Job job = make_dry_job(recipe, {}, first);
  const WorldBatch batch = synthetic_world_batch(job);
  ASSERT_EQ(batch.steps.size(), 2u);
  ASSERT_GT(batch.microbatches, 3);
  const WorldPlan world = plan_world(job, batch);
  EXPECT_TRUE(world.synthetic);
  EXPECT_EQ(world.ranks.size(), 4u);
  // The whole step: every lane's microbatch once more for each.
  LoadedStep whole;
  std::vector<Verdict> verdicts;
  for (int64_t m = 0; m < batch.microbatches; ++m) {
    for (const PreparedSample& sample : batch.of_rank(0, world.largest).samples) whole.samples.push_back(sample);
    for (Verdict verdict : batch.steps.front().plan.samples) {
      verdict.sample = verdict.position = verdicts.size();
      verdicts.push_back(std::move(verdict));
    }
  }
  whole.plan = make_step_plan(1, std::move(verdicts), batch.steps.front().plan.budget, 0, job.layout);
  ASSERT_EQ(static_cast<int64_t>(whole.plan.microbatches.size()), batch.microbatches);
  const RankPlan run = dry_step(job, whole, world.largest);
  expect_same(run.steps.front().traffic, world.traffic, "invented");
  EXPECT_NEAR(run.steps.front().work.model() / world.plan.step.model(), 1, 1e-9);
  EXPECT_NEAR(static_cast<double>(run.plan.peak) / static_cast<double>(world.plan.peak), 1, 0.02);
}

TEST(PlanWorld, InventedStepsFillEveryLane) {
  const TempFolder folder;
  DryCommunicator first(0, 6);
  const Job job = make_dry_job(recipe_of(folder, kRecipe, "{backbone: {sp: 2}}"), {"train.batch=2 samples"}, first);
  const WorldBatch batch = synthetic_world_batch(job);
  EXPECT_EQ(batch.microbatches, 1);
  const MicrobatchPlan& microbatch = batch.steps.front().plan.microbatches.at(0);
  std::vector<int64_t> rows(6);
  for (const PlacedSample& placed : microbatch.samples) {
    for (const Piece& piece : placed.pieces) rows[static_cast<size_t>(piece.rank)] += piece.rows;
  }
  EXPECT_EQ(rows, std::vector<int64_t>(6, 128));
}

TEST(PlanWorld, OfManyRanksTheLargestIsFound) {
  const TempFolder folder;
  DryCommunicator first(0, 12);
  const Job job =
      make_dry_job(recipe_of(folder, kRecipe, "{encoders: {image: {sp: 2}}, backbone: {shard: 4}}"), {}, first);
  WorldBatch batch;
  LoadedStep step = uneven_step(job, 29, 256);
  batch.steps.resize(1);
  for (size_t s = 0; s < step.samples.size(); ++s) batch.steps[0].contents.push_back(s);
  batch.steps[0].plan = step.plan;
  batch.samples = step.samples;
  batch.microbatches = static_cast<int64_t>(step.plan.microbatches.size());
  const WorldPlan world = plan_world(job, batch);
  EXPECT_FALSE(world.complete);
  EXPECT_LT(world.ranks.size(), 7u);
  EXPECT_EQ(world.ranks.front().rank, 0);
  int64_t most = 0, least = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < 12; ++rank) {
    const int64_t peak = dry_step(job, step, rank).plan.peak;
    most = std::max(most, peak);
    least = std::min(least, peak);
  }
  EXPECT_LT(static_cast<double>(least), 0.95 * static_cast<double>(most)) << "the ranks are alike";
  EXPECT_GE(static_cast<double>(world.plan.peak), 0.95 * static_cast<double>(most));
}

TEST(PlanWorld, MemoryPerRankFallsWithTheWorld) {
  const TempFolder folder;
  const std::string recipe = recipe_of(folder, kRecipe, "");
  int64_t before = 0;
  for (const int ranks : {2, 4, 8}) {
    DryCommunicator first(0, ranks);
    const Job job = make_dry_job(recipe, {}, first);
    const WorldPlan world = plan_world(job, synthetic_world_batch(job));
    const TrainingPlan& plan = world.plan;
    EXPECT_EQ(plan.weights + plan.gathered + plan.gradients + plan.optimizer + plan.tables + plan.batch_bytes +
                  plan.kept + plan.transient,
              plan.peak);
    const int64_t held = plan.weights + plan.gradients + plan.optimizer;
    if (before > 0) {
      EXPECT_NEAR(static_cast<double>(before) / static_cast<double>(held), 2, 0.1) << ranks;
    }
    before = held;
    EXPECT_EQ(plan.rows.front().component, "encoders.image");
    EXPECT_EQ(plan.rows.front().layout, concat(ranks, " lanes · shard ", ranks));
    EXPECT_GT(bytes_on(world.traffic, CommAxis::shard), 0);
  }
}

// What a rank keeps for the backward is its share of the lane's rows, however attention is divided; under tp it keeps
// the group's rows where a split layer read them.
TEST(PlanWorld, ActivationsFallWithTheRanksOfALane) {
  const TempFolder folder;
  const auto kept = [&](const std::string& backbone) {
    DryCommunicator first(0, 8);
    const std::string parallel = "{encoders: {image: {sp: 4}}, backbone: " + backbone + "}";
    const Job job = make_dry_job(recipe_of(folder, kRecipe, parallel), {"data.budget=8192"}, first);
    return static_cast<double>(plan_world(job, synthetic_world_batch(job)).plan.kept);
  };
  const double one = kept("{sp: 1}");
  const auto ratio_of = [&](int ranks, const std::string& backbone) {
    const double ratio = kept(backbone) * ranks / one;
    std::printf("%-28s kept x %d / kept of one rank %.4f\n", backbone.c_str(), ranks, ratio);
    return ratio;
  };
  for (const int sp : {2, 4}) EXPECT_NEAR(ratio_of(sp, concat("{sp: ", sp, "}")), 1, 0.05);
  for (const char* attention : {"ring", "mesh"})
    EXPECT_NEAR(ratio_of(8, concat("{sp: 8, attention: ", attention, "}")), 1, 0.05);
  EXPECT_LT(ratio_of(2, "{tp: 2}"), 1.3);
}

TEST(PlanWorld, ALayoutThatDoesNotFitIsRefused) {
  const TempFolder folder;
  const auto plan = [&](int ranks, const std::string& parallel) {
    DryCommunicator first(0, ranks);
    const Job job = make_dry_job(recipe_of(folder, kRecipe, parallel), {}, first);
    return plan_world(job, synthetic_world_batch(job));
  };
  const auto refusal = [&](int ranks, const std::string& parallel) {
    return message_of<UserError>([&] { plan(ranks, parallel); });
  };
  const std::string file = folder.write("recipe.yaml", "") + ":";
  const auto expect_words = [&](const std::string& found, const std::vector<std::string>& parts) {
    EXPECT_EQ(found.rfind(file, 0), 0u) << found;
    EXPECT_EQ(found.find('\n'), std::string::npos) << found;
    for (const std::string& part : parts) EXPECT_NE(found.find(part), std::string::npos) << part << "\n" << found;
  };
  expect_words(refusal(8, "{backbone: {shard: 3}}"), {"backbone.shard", "3", "8 ranks", "1, 2, 4, 8"});
  expect_words(refusal(8, "{backbone: {sp: 3}}"), {"backbone.sp", "3", "1, 2, 4, 8"});
  expect_words(refusal(8, "{backbone: {tp: 3}}"), {"backbone.tp", "3", "1, 2, 4, 8"});
  expect_words(refusal(8, "{backbone: {tp: 4}}"), {"backbone.tp", "qkv.weight#q", "at most 2"});
  expect_words(refusal(8, "{backbone: {tp: 2, sp: 8}}"), {"backbone.sp", "4 groups of 2 ranks (tp)", "1, 2, 4"});
  expect_words(refusal(8, "{backbone: {tp: 2, shard: 8}}"), {"backbone.shard", "4 groups of 2 ranks (tp)", "1, 2, 4"});
  expect_words(refusal(6, "{encoders: {image: {shard: 4}}}"), {"encoders.image.shard", "1, 2, 3, 6"});
  expect_words(refusal(8, "{backbone: {sp: 8}}"),
               {"backbone.sp", "8 ranks", "4 heads", "one of 1, 2, 4, or attention: ring"});
  expect_words(refusal(6, "{backbone: {sp: 6}}"), {"backbone.sp", "6 ranks", "4 heads", "one of 1, 2, 3"});
  expect_words(refusal(8, "{encoders: {image: {sp: 5}}}"),
               {"encoders.image.sp", "5 ranks", "4 heads", "one of 1, 2, 3, 4"});
  EXPECT_EQ(plan(8, "{backbone: {sp: 8, attention: ring}}").ranks.size(), 8u);
  // On four ranks no item lies on more than four.
  EXPECT_EQ(plan(4, "{encoders: {image: {sp: 8}}, backbone: {sp: 4}}").ranks.size(), 4u);
}

struct Answer {
  int code = 0;
  std::string text;
};

Answer run_plan(const std::string& arguments) {
  Answer out;
  FILE* pipe = ::popen(concat("OMP_NUM_THREADS=1 ", kProgram, " plan ", arguments, " 2>&1").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) out.text += static_cast<char>(c);
  out.code = WEXITSTATUS(::pclose(pipe));
  return out;
}

TEST(PlanWorld, TheCommandPrintsATableOrJson) {
  const TempFolder folder;
  const std::string recipe =
      recipe_of(folder, kTwoEncoders, "{encoders: {image: {sp: 2}}, backbone: {sp: 2, shard: 2}}");
  const Answer table = run_plan(recipe + " --world 8 --units");
  EXPECT_EQ(table.code, 0) << table.text;
  for (const char* text :
       {"8 ranks", "wire per step", "encoders.image", "encoders.detail", "items over up to 2 ranks",
        "4 lanes, sp 2 · shard 2 x 4 copies", "all-gather", "reduce-scatter", "all-reduce over copies", "sp exchange",
        "bridge exchange", "largest rank", "per rank and step", "limits ", "sp may rise to 4 (heads 4/2)",
        "batch is invented", "backbone.blocks.*"})
    EXPECT_NE(table.text.find(text), std::string::npos) << text << "\n" << table.text;
  const Answer json = run_plan(recipe + " --world 8 --json");
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(json.text.front(), '{') << json.text;
  for (const char* text : {"\"world\": 8", "\"ranks\"", "\"axis\": \"bridge\"", "\"synthetic\": true"})
    EXPECT_NE(json.text.find(text), std::string::npos) << text << "\n" << json.text;
  const Answer many = run_plan(recipe + " --world 512");
  EXPECT_EQ(many.code, 0) << many.text;
  EXPECT_NE(many.text.find("which have most work"), std::string::npos) << many.text;
  for (const char* flags : {" --world 3", " --world 8 --batch-from-data"})
    EXPECT_EQ(run_plan(recipe + flags).code, 2) << flags;
  const Answer nobody = run_plan(recipe + " --world 0");
  EXPECT_EQ(nobody.code, 2);
  EXPECT_NE(nobody.text.find("--world 0: expected 1 to"), std::string::npos) << nobody.text;
}

}  // namespace
}  // namespace loom::test
