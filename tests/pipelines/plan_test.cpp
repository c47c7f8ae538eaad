// Plans against real steps: bytes at the peak, operations, and what planning itself costs.
#include "pipelines/plan.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <fstream>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/batch_builder.h"
#include "core/parallel/memory_meter.h"
#include "core/train/trainer.h"
#include "pipelines/step_cost.h"
#include "tests/pipelines/plan_steps.h"

namespace loom::test {
namespace {

constexpr const char* kRecipe = R"(
name: plan
plugins: [PLUGINS]
model:
  encoders:
    image: {plugin: vit, image_size: 56, patch: 7, width: 96, depth: 3, heads: 3}
  connectors:
    image: {plugin: mlp, hidden: 128}
  backbone: {plugin: llama, width: 128, depth: 3, heads: 4, kv_heads: 2, ffn: 352}
data: {budget: 1024}
train: {lr: 1e-3, batch: 16 samples, threads: 1}
)";

constexpr const char* kText = R"(
name: plan
plugins: [PLUGINS]
model:
  backbone: {plugin: llama, width: 256, depth: 4, heads: 4, ffn: 1024, vocab: 4000, tied: false}
data: {budget: 128}
train: {lr: 1e-3, batch: 4096 tokens, threads: 1}
)";

// Kilobytes of resident memory.
int64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoll(line.substr(6));
  }
  return 0;
}

struct Measured {
  int64_t peak = 0, resident = 0;
  StepStats stats;
};

// The second of two real steps.
Measured measure(const std::string& recipe, const std::vector<std::string>& overrides, const LoadedStep& microbatch) {
  install_memory_meter();
  const int64_t before = memory_use(c10::DeviceType::CPU).live, resident_before = resident();
  const Job job = make_job(recipe, overrides);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(read_optimizer(job.recipe.train()), job.model->buffers());
  Trainer trainer(*job.model, *optimizer, {});
  const LoadedStep step = with_values(microbatch, job.model->backbone().vocab());
  trainer.step(step);
  Measured out;
  out.stats = trainer.step(step);
  out.peak = out.stats.peak_bytes - before;
  out.resident = (resident() - resident_before) * 1024;
  return out;
}

TEST(Plan, ThePeakIsThatOfARealStep) {
  struct Case {
    const char* name;
    const char* recipe;
    std::vector<std::string> overrides;
  };
  const std::vector<Case> cases{
      {"captioner", kRecipe, {}},
      {"recompute", kRecipe, {"train.recompute=true"}},
      {"frozen encoder", kRecipe, {"model.tune={encoders.image: frozen}"}},
      {"frozen backbone", kRecipe, {"model.tune={backbone: frozen}"}},
      {"long budget", kRecipe, {"data.budget=4096"}},
      {"short budget, big model", kText, {}},
      {"long text", kText, {"data.budget=2048"}},
      {"bf16", kRecipe, {"train.precision=bf16"}},
      {"bf16, recompute", kText, {"train.precision=bf16", "train.recompute=true", "data.budget=512"}},
      {"sgd, dropout, fp64",
       kRecipe,
       {"train.optimizer=sgd", "model.backbone.dropout=0.1", "model.encoders.image.dropout=0.1",
        "train.precision=fp64"}},
  };
  const TempFolder folder;
  std::printf("%-26s %12s %12s %10s %12s %8s  %s\n", "recipe", "predicted", "measured", "ratio", "RSS grew", "activ.",
              "peak at");
  double least = 1, most = 0;
  for (const Case& c : cases) {
    const std::string recipe = recipe_file(folder, c.recipe);
    const Job job = make_dry_job(recipe, c.overrides);
    const PlanBatch batch = synthetic_batch(job);
    const TrainingPlan plan = plan_training(job, batch);
    ASSERT_EQ(batch.largest.size(), 1u);
    const Measured real = measure(recipe, c.overrides, batch.largest.front());
    EXPECT_TRUE(std::isfinite(real.stats.loss));
    const double ratio = static_cast<double>(plan.peak) / static_cast<double>(real.peak);
    const double share = static_cast<double>(plan.activations()) / static_cast<double>(plan.peak);
    std::printf("%-26s %12s %12s %10.6f %12s %7.0f%%  %s\n", c.name, with_commas(plan.peak).c_str(),
                with_commas(real.peak).c_str(), ratio, with_commas(real.resident).c_str(), 100 * share,
                plan.peak_at.c_str());
    EXPECT_NEAR(ratio, 1, 0.05) << c.name;
    EXPECT_NEAR(ratio, 1, 0.001) << c.name << ": the dry run does not allocate what the real step does";
    const int64_t parts = plan.weights + plan.gathered + plan.gradients + plan.optimizer + plan.tables +
                          plan.batch_bytes + plan.kept + plan.transient;
    EXPECT_EQ(parts, plan.peak) << c.name;
    int64_t rows = plan.gathered + plan.tables;
    for (const PlanRow& row : plan.rows) rows += row.weights + row.gradients + row.optimizer + row.activations;
    EXPECT_NEAR(static_cast<double>(rows), static_cast<double>(plan.peak), 8) << c.name;
    least = std::min(least, share);
    most = std::max(most, share);
  }
  EXPECT_LT(least, 0.5) << "no case in which weights dominate";
  EXPECT_GT(most, 0.5) << "no case in which activations dominate";
}

TEST(Plan, KnobsSayWhatTheyWouldSave) {
  const TempFolder folder;
  const std::string recipe = recipe_file(folder, kRecipe);
  const Job job = make_dry_job(recipe, {"data.budget=4096"});
  const TrainingPlan plan = plan_training(job, synthetic_batch(job));
  ASSERT_TRUE(plan.recomputed_peak.has_value());
  ASSERT_TRUE(plan.half_budget_peak.has_value());
  const Job again = make_dry_job(recipe, {"data.budget=4096", "train.recompute=true"});
  EXPECT_EQ(plan_training(again, synthetic_batch(again)).peak, *plan.recomputed_peak);
  EXPECT_FALSE(plan_training(again, synthetic_batch(again)).recomputed_peak.has_value());
  EXPECT_LT(*plan.recomputed_peak, plan.peak);
  const Job half = make_dry_job(recipe, {"data.budget=2048"});
  EXPECT_NEAR(static_cast<double>(plan_training(half, synthetic_batch(half)).peak),
              static_cast<double>(*plan.half_budget_peak), 0.05 * static_cast<double>(plan.peak));
}

// A step of unequal samples: with one item, two items, none.
LoadedStep mixed_step(const Job& job, int64_t budget) {
  LoadedStep step;
  std::vector<Verdict> verdicts;
  for (int64_t i = 0; i < 23; ++i) {
    std::vector<ItemPlace> items;
    const bool pictures = !job.model->modalities().empty();
    for (int64_t k = 0; pictures && k < i % 3; ++k) items.push_back(*guess_item(job, "image"));
    PreparedSample sample = plan_sample(job, std::move(items), 20 + 7 * (i % 9), 3 + 2 * (i % 5));
    sample.verdict.sample = sample.verdict.position = static_cast<uint64_t>(i);
    verdicts.push_back(sample.verdict);
    step.samples.push_back(std::move(sample));
  }
  step.plan = make_step_plan(1, std::move(verdicts), budget, 0);
  return step;
}

Operations dry_operations(const Job& job, const LoadedStep& step) {
  StepMeter meter(*job.model);
  for (size_t m = 0; m < step.plan.microbatches.size(); ++m)
    job.model->forward_backward(to_device(build_batch(step, m, *job.model), job.model->device()), 1, {});
  return meter.total();
}

TEST(Plan, TheCostOfAStepAgreesWithItsDryRun) {
  install_memory_meter();
  const TempFolder folder;
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {},
           {"train.recompute=true"},
           {"model.tune={encoders.image: frozen}"},
           {"model.tune={backbone: frozen}"},
           {"model.tune={backbone: frozen, encoders.image: frozen}", "train.precision=bf16"}}) {
    const Job job = make_dry_job(recipe_file(folder, kRecipe), overrides);
    const LoadedStep step = mixed_step(job, 256);
    ASSERT_GT(step.plan.microbatches.size(), 3u);
    const StepCost cost(job, step.plan);
    const Operations dry = dry_operations(job, step);
    EXPECT_NEAR(cost.flops(step.plan) / dry.model(), 1, 0.01) << join(overrides, " ");
    EXPECT_NEAR(cost.hardware_flops(step.plan) / dry.hardware(), 1, 0.01) << join(overrides, " ");
    EXPECT_NEAR(cost.flops(step.plan) / dry.model(), 1, 1e-6) << join(overrides, " ");
  }
  const Job text = make_dry_job(recipe_file(folder, kText), {"data.budget=512"});
  const LoadedStep step = mixed_step(text, 300);
  EXPECT_NEAR(StepCost(text, step.plan).flops(step.plan) / dry_operations(text, step).model(), 1, 1e-6);
}

TEST(Plan, ASevenBillionModelIsPlannedWithoutItsMemory) {
  const TempFolder folder;
  const std::string recipe = recipe_file(folder, R"(
name: seven
plugins: [PLUGINS]
model:
  backbone: {plugin: llama, width: 4096, depth: 32, heads: 32, kv_heads: 8, ffn: 14336, vocab: 32000, tied: false}
data: {budget: 8192}
train: {lr: 1e-3, batch: 262144 tokens, precision: bf16, recompute: true}
)");
  const int64_t before = resident();
  const Job job = make_dry_job(recipe, {});
  const TrainingPlan plan = plan_training(job, synthetic_batch(job));
  const int64_t grown = (resident() - before) * 1024;
  std::printf("7B: peak %s, %s per step, RSS grew by %s\n", human_bytes(static_cast<double>(plan.peak)).c_str(),
              human_count(plan.step.model()).c_str(), human_bytes(static_cast<double>(grown)).c_str());
  EXPECT_LT(grown, 200'000'000);
  const double params = static_cast<double>(plan.rows.front().params);
  EXPECT_NEAR(params, 7.24e9, 0.01e9);
  EXPECT_EQ(plan.weights, 4 * plan.rows.front().params);
  EXPECT_EQ(plan.optimizer, 2 * plan.weights);
  EXPECT_GT(plan.peak, 4 * plan.weights);
  // Six operations per parameter and token (embedding rows are looked up), and attention.
  const double tokens = 262144, matrices = params - 32000.0 * 4096;
  EXPECT_NEAR(plan.step.products, 6 * matrices * tokens, 0.001 * plan.step.products);
  EXPECT_NEAR(plan.step.attention, 3 * 4.0 * 4096 * 32 * tokens * (8192 + 1) / 2, 0.001 * plan.step.attention);
}

TEST(Plan, WithoutDataSamplesAreInventedAndSaidToBe) {
  const TempFolder folder;
  const TrainingPlan plan = plan_training(make_dry_job(recipe_file(folder, kRecipe), {}));
  EXPECT_EQ(plan.batch.rfind("invented, a full budget; 64 rows per image (", 0), 0u) << plan.batch;
  EXPECT_NE(plan.batch.find("no source"), std::string::npos) << plan.batch;
  EXPECT_EQ(plan.tokens, 1024);
  // 16 samples of 97 tokens are 1.6 microbatches of 10.
  const Job job = make_dry_job(recipe_file(folder, kRecipe), {});
  EXPECT_NEAR(synthetic_batch(job).repeat, 16.0 / 11, 1e-12);
}

TEST(Plan, OfALoadedStepCoversItsLargestMicrobatch) {
  const TempFolder folder;
  const Job job = make_dry_job(recipe_file(folder, kRecipe), {"data.budget=256"});
  const LoadedStep step = mixed_step(job, 256);
  const TrainingPlan plan = plan_training(job, batch_from_step(step));
  int64_t tokens = 0;
  for (const MicrobatchPlan& microbatch : step.plan.microbatches) tokens = std::max(tokens, microbatch.tokens);
  EXPECT_GE(tokens, plan.tokens);
  EXPECT_EQ(plan.batch, "step 1");
  EXPECT_NEAR(plan.step.model() / dry_operations(job, step).model(), 1, 1e-6);
  ASSERT_NE(try_step_cost(job, step.plan), nullptr);
}

struct Answer {
  int code = 0;
  std::string text;
};

Answer run_program_plan(const std::string& arguments) {
  Answer out;
  FILE* pipe = ::popen(concat("OMP_NUM_THREADS=1 ", kProgram, " plan ", arguments, " 2>&1").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) out.text += static_cast<char>(c);
  out.code = WEXITSTATUS(::pclose(pipe));
  return out;
}

TEST(Plan, TheCommandPrintsATableOrJson) {
  const TempFolder folder;
  const std::string recipe = recipe_file(folder, kRecipe);
  const Answer table = run_program_plan(recipe + " --synthetic --units data.budget=512");
  EXPECT_EQ(table.code, 0) << table.text;
  for (const char* text : {"encoders.image", "batch and bridge", "peak    ", "backward of backbone", "GFLOP per step",
                           "train.recompute=true -> ", "machine ", "backbone.blocks.*"})
    EXPECT_NE(table.text.find(text), std::string::npos) << text << "\n" << table.text;
  const Answer json = run_program_plan(recipe + " --json");
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(json.text.front(), '{');
  EXPECT_NE(json.text.find("\"with_recompute\""), std::string::npos) << json.text;
  EXPECT_EQ(run_program_plan(recipe + " --batch-from-data").code, 2);
  EXPECT_EQ(run_program_plan(recipe + " train.lr=fast").code, 2);
}

TEST(Plan, RefusesWhatCannotBePlanned) {
  const TempFolder folder;
  const Job job = make_dry_job(recipe_file(folder, kRecipe), {"data.budget=40"});
  EXPECT_NE(message_of<UserError>([&] { synthetic_batch(job); }).find("data.budget is 40"), std::string::npos);
  EXPECT_NE(message_of<UserError>([&] { batch_from_data(job); }).find("data.train: no source"), std::string::npos);
}

}  // namespace
}  // namespace loom::test
