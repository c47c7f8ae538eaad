// `omniloom plan`: the table of what a training step needs, on one rank or the largest of several, and what would lower
// it.
#include <cstdio>
#include <memory>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/dry.h"
#include "pipelines/cli.h"
#include "pipelines/plan.h"
#include "pipelines/plan_json.h"
#include "pipelines/plan_world_table.h"

namespace loom {
namespace {

using Json = nlohmann::ordered_json;

struct PlanFlags {
  std::string recipe;
  int world = 1;
  bool from_data = false, synthetic = false, units = false, json = false;
  std::vector<std::string> overrides;
};

int64_t machine_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

Table rows_table(const TrainingPlan& plan) {
  Table table{{"component", "params", "trainable", "weights", "gradients", "optimizer", "activations", "per step"}};
  PlanRow total;
  const auto add = [&](const PlanRow& row) {
    const auto count = [](int64_t n) { return n == 0 ? std::string("-") : human_count(static_cast<double>(n)); };
    table.push_back({row.component, count(row.params), count(row.trainable), bytes_text(row.weights),
                     bytes_text(row.gradients), bytes_text(row.optimizer), bytes_text(row.activations),
                     flops_text(row.flops)});
  };
  for (const PlanRow& row : plan.rows) {
    add(row);
    total.params += row.params;
    total.trainable += row.trainable;
    total.weights += row.weights;
    total.gradients += row.gradients;
    total.optimizer += row.optimizer;
    total.activations += row.activations;
    total.flops += row.flops;
  }
  total.component = "total";
  add(total);
  return table;
}

void print_plan(const Job& job, const TrainingPlan& plan, bool units) {
  std::printf("%s · 1 rank · %s · recompute %s\n", job.recipe.name().c_str(),
              job.recipe.train().get_string("precision").c_str(),
              job.recipe.train().get_bool("recompute") ? "on" : "off");
  std::printf("batch   %s: %s of %s tokens in %s sample%s, %s supervised\n\n", plan.batch.c_str(),
              with_commas(plan.tokens).c_str(), with_commas(plan.budget).c_str(), with_commas(plan.samples).c_str(),
              plan.samples == 1 ? "" : "s", with_commas(plan.supervised).c_str());
  print_table(rows_table(plan));
  if (units) print_units(plan, "one microbatch");
  std::printf("\npeak    %s in the %s: %s\n", human_bytes(static_cast<double>(plan.peak)).c_str(), plan.peak_at.c_str(),
              peak_parts(plan).c_str());
  print_snapshot(plan);
  std::printf(
      "work    %s per step (a multiply-add is two, causal attention counted once, nothing counted again); %s done\n",
      flops_text(plan.step.model()).c_str(), flops_text(plan.step.hardware()).c_str());
  std::vector<std::string> knobs;
  add_knob(plan, "train.recompute=true", plan.recomputed_peak, knobs);
  add_knob(plan, concat("data.budget=", plan.budget / 2), plan.half_budget_peak, knobs);
  if (!knobs.empty()) std::printf("lower   %s\n", join(knobs, " · ").c_str());
  if (plan.full_budget_peak.has_value()) {
    std::printf("worst   %s if microbatches were full (%s tokens, invented)\n",
                human_bytes(static_cast<double>(*plan.full_budget_peak)).c_str(), with_commas(plan.budget).c_str());
  }
  const int64_t memory = machine_memory();
  const std::string verdict = plan.peak > memory         ? "WARNING: the step does not fit"
                              : 100 * plan.peak < memory ? "the peak is less than 1 % of it"
                                                         : concat("the peak is ", 100 * plan.peak / memory, " % of it");
  std::printf("machine %s of memory; %s\n", human_bytes(static_cast<double>(memory)).c_str(), verdict.c_str());
}

Json operations_json(const Operations& o) {
  return {{"products", o.products}, {"attention", o.attention}, {"again", o.again}};
}

void print_json(const Job& job, const TrainingPlan& plan) {
  Json out{{"name", job.recipe.name()}, {"world", 1}};
  out["batch"] = {{"from", plan.batch},
                  {"tokens", plan.tokens},
                  {"supervised", plan.supervised},
                  {"samples", plan.samples},
                  {"budget", plan.budget}};
  for (const PlanRow& row : plan.rows) {
    Json cells = row_json(row);
    cells["flops"] = row.flops;
    out["rows"].push_back(std::move(cells));
  }
  for (const PlanUnits& u : plan.units) {
    if (u.component.empty()) continue;
    out["units"].push_back({{"component", u.component},
                            {"unit", u.units},
                            {"count", u.count},
                            {"forward", operations_json(u.forward)},
                            {"backward", operations_json(u.backward)}});
  }
  out["peak"] = peak_json(plan);
  out["flops"] = {{"model", plan.step.model()}, {"hardware", plan.step.hardware()}};
  if (plan.recomputed_peak.has_value()) out["with_recompute"] = *plan.recomputed_peak;
  if (plan.half_budget_peak.has_value()) out["with_half_budget"] = *plan.half_budget_peak;
  if (plan.full_budget_peak.has_value()) out["full_budget"] = *plan.full_budget_peak;
  out["machine_memory"] = machine_memory();
  std::printf("%s\n", out.dump(2).c_str());
}

void plan_several(const PlanFlags& flags) {
  DryCommunicator first(0, flags.world);
  const Job job = make_dry_job(flags.recipe, flags.overrides, first);
  const WorldBatch batch = flags.from_data   ? world_batch_from_data(job)
                           : flags.synthetic ? synthetic_world_batch(job)
                                             : usual_world_batch(job);
  const WorldPlan result = plan_world(job, batch);
  if (flags.json) {
    std::printf("%s\n", world_plan_json(job, result).c_str());
    return;
  }
  print_world_plan(job, result);
  if (flags.units) print_units(result.plan, concat("rank ", result.largest, ", the steps that were run"));
}

int plan(const PlanFlags& flags) {
  LOOM_CHECK_USER(flags.world >= 1 && flags.world <= kMostPlannedRanks, "--world ", flags.world, ": expected 1 to ",
                  kMostPlannedRanks, " ranks");
  LOOM_CHECK_USER(!flags.from_data || !flags.synthetic, "--batch-from-data goes without --synthetic");
  if (flags.world > 1) {
    plan_several(flags);
    return 0;
  }
  const Job job = make_dry_job(flags.recipe, flags.overrides);
  const TrainingPlan result = flags.from_data   ? plan_training(job, batch_from_data(job))
                              : flags.synthetic ? plan_training(job, synthetic_batch(job))
                                                : plan_training(job);
  if (flags.json) {
    print_json(job, result);
  } else {
    print_plan(job, result, flags.units);
  }
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& root, Command& run) {
  CLI::App* command = root.add_subcommand(
      "plan", "memory and operations of a training step, per component, before and without running it");
  const auto flags = std::make_shared<PlanFlags>();
  command->add_option("recipe", flags->recipe, "recipe.yaml")->required();
  command
      ->add_option("--world", flags->world,
                   "ranks under the recipe's `parallel` section, none of which is started: memory of the largest rank "
                   "and what it sends")
      ->capture_default_str();
  command->add_flag("--batch-from-data", flags->from_data,
                    "plan for the first steps of data.train or fail; by default "
                    "they are used if they can be read");
  command->add_flag("--synthetic", flags->synthetic, "plan for invented samples that fill data.budget");
  command->add_flag("--units", flags->units, "operations by unit, too");
  command->add_flag("--json", flags->json, "everything, for programs");
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return plan(*flags); };
  });
}

}  // namespace loom
