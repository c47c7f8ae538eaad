// The run's own report and that of `omniloom eval --report` differ only in where the numbers come from.
#include "pipelines/run_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <deque>
#include <limits>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/config/yaml_writer.h"
#include "core/observe/metrics.h"
#include "core/observe/progress.h"
#include "pipelines/device.h"
#include "pipelines/machine.h"
#include "pipelines/parallel_section.h"
#include "pipelines/report_skips.h"

namespace loom {
namespace {

std::string format(const char* pattern, double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::localtime_r(&now, &parts) == nullptr) return "";
  return std::string(text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts));
}

std::string plural(int64_t count, const std::string& word) {
  return with_commas(count) + " " + word + (count == 1 ? "" : "s");
}

// "60,000 samples in 1 source"
std::string data_text(const RunReport& report) {
  const auto sources = static_cast<int64_t>(report.job->recipe.data().at("train").items().size());
  const std::string in = plural(sources, "source");
  return report.samples > 0 ? plural(report.samples, "sample") + " in " + in : in;
}

std::vector<ReportNumber> numbers_of(const RunReport& report) {
  std::vector<ReportNumber> out;
  if (report.eval) {
    const EvalNumbers& eval = *report.eval;
    const std::string on = plural(eval.samples, "held-out sample") + ", step " + with_commas(eval.step);
    if (eval.exact) out.push_back({"Exact match", percent_text(*eval.exact, "%.2f %%"), on});
    if (eval.swapped)
      out.push_back(
          {"With swapped media", percent_text(*eval.swapped, "%.2f %%"), "each shown another sample's picture"});
    if (eval.accuracy)
      out.push_back(
          {"Right tokens", percent_text(*eval.accuracy, "%.2f %%"), eval.exact ? "given the ones before" : on});
    out.push_back({"Held-out loss", format("%.4f", eval.loss), "per supervised token"});
  }
  if (report.loss) out.push_back({"Training loss", format("%.4f", *report.loss), "of the last step"});
  if (report.tokens_per_second) {
    ReportNumber speed{"Speed", human_count(*report.tokens_per_second) + " tok/s", "mean of the last steps"};
    if (report.flops_per_second) {
      speed.note = human_flops(*report.flops_per_second);
      if (report.peak > 0)
        speed.note += ", " + percent_text(*report.flops_per_second / report.peak, "%.0f %%") + " of peak";
    }
    out.push_back(std::move(speed));
  }
  out.push_back({"Training time", human_duration(report.state.train_seconds), plural(report.state.step, "step")});
  return out;
}

std::vector<ReportFact> facts_of(const RunReport& report) {
  const Job& job = *report.job;
  const ConfigValue& train = job.recipe.train();
  const Machine machine = this_machine();
  std::vector<ReportFact> out;
  out.push_back({"Machine", machine.cpu});
  if (job.device.is_cuda()) out.push_back({"GPU", device_text(job.device)});
  out.push_back({"Ranks", plural(report.ranks, "rank") + ", " + plural(job.threads, "thread") +
                              (report.ranks > 1 ? " each" : "")});
  out.push_back({"Precision", train.get_string("precision") + (machine.native_bf16 ? "" : ", no native bf16")});
  if (report.peak > 0) out.push_back({"Measured peak", human_flops(report.peak)});
  out.push_back({"Data", data_text(report)});
  out.push_back({"Batch", train.at("batch").text()});
  std::string packing = "budget " + with_commas(job.recipe.data().get_int("budget")) + " tokens";
  if (report.packed_fill) packing += ", " + percent_text(*report.packed_fill) + " full";
  out.push_back({"Packing", packing});
  out.push_back({"Samples seen", with_commas(report.state.samples)});
  out.push_back({"Tokens seen", with_commas(report.state.tokens)});
  if (report.memory_peak > 0) out.push_back({"Memory peak", human_bytes(static_cast<double>(report.memory_peak))});
  out.push_back({"Seed", std::to_string(train.get_int("seed"))});
  out.push_back({"Omniloom", kVersion});
  return out;
}

// What the metrics of the run say of its last step; for a report that is not written by the run itself.
void add_last_step(const std::string& run, RunReport& report, int64_t& last) {
  const std::string file = run + "/metrics.jsonl";
  if (!is_file(file)) return;
  std::deque<MetricsLine> lines;  // the newest
  for_each_metrics_line(file, [&](const MetricsLine& line) {
    lines.push_back(line);
    if (lines.size() > 20) lines.pop_front();
  });
  if (lines.empty()) return;
  last = lines.back().step;
  report.memory_peak = static_cast<int64_t>(lines.back().number("rss_peak", 0));
  report.packed_fill = lines.back().number("packed_fill", 0);
  if (*report.packed_fill <= 0) report.packed_fill.reset();
  double seconds = 0, tokens = 0, flops = 0, peak = 0;
  for (const MetricsLine& line : lines) {
    const double step_seconds = line.number("seconds", 0), share = line.number("peak_share", 0);
    seconds += step_seconds;
    tokens += line.number("tokens", 0);
    flops += line.number("flops_per_second", 0) * step_seconds;
    if (share > 0) peak = line.number("flops_per_second", 0) / share;
  }
  if (seconds > 0 && tokens > 0) report.tokens_per_second = tokens / seconds;
  if (seconds > 0 && flops > 0) report.flops_per_second = flops / seconds;
  report.peak = peak;
}

}  // namespace

EvalNumbers eval_numbers(int64_t step, const EvalOptions& options, const EvalResult& result) {
  EvalNumbers out;
  out.step = step;
  out.samples = result.samples;
  out.skipped = result.skipped;
  out.first_skip = result.first_skip;
  out.loss = result.loss;
  if (options.generate) out.exact = result.exact_match();
  out.accuracy = result.token_accuracy();
  return out;
}

std::vector<ReportPlanRow> plan_rows(const TrainingPlan& plan, const Job& job) {
  std::vector<ReportPlanRow> rows = plain_plan(job);
  for (const PlanRow& found : plan.rows) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const ReportPlanRow& known) { return known.component == found.component; });
    ReportPlanRow& out = row != rows.end() ? *row : rows.emplace_back();
    out.component = found.component;
    out.weights = found.weights;
    out.gradients = found.gradients;
    out.optimizer = found.optimizer;
    out.activations = found.activations;
  }
  return rows;
}

std::vector<ReportPlanRow> plain_plan(const Job& job) {
  std::vector<std::string> lines;
  if (job.layout.world > 1) lines = layout_lines(job.layout, *job.model);
  std::vector<ReportPlanRow> rows;
  for (const BoundComponent* component : job.model->components()) {
    ReportPlanRow row;
    row.component = component->name();
    row.params = component->params_total();
    row.layout = job.layout.world > 1 ? "" : "1 rank";
    for (const std::string& line : lines) {
      if (line.rfind(row.component + " ", 0) == 0) row.layout = trim(line.substr(row.component.size()));
    }
    if (component->params_trainable() == 0) row.layout += " · frozen";
    rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

// A plugin that does not run without memory, or data that are gone, leave the memory out.
std::vector<ReportPlanRow> planned_or_plain(const Job& job) {
  try {
    return plan_rows(plan_memory(job, usual_batch(job)), job);
  } catch (const Error&) {
    return plain_plan(job);
  }
}

}  // namespace

void write_run_report(const std::string& run, const RunReport& report, const SampleLog& samples,
                      const std::vector<SkipRecord>& skips) {
  const Job& job = *report.job;
  ReportData data;
  data.title = job.recipe.name();
  data.subtitle =
      model_line(job) + "\non " + data_text(report) + ", " + job.recipe.train().at("batch").text() + " per step";
  data.state = report.status;
  data.note = report.note;
  data.updated = time_now();
  data.step = report.state.step;
  data.steps = job.recipe.train().get_int("steps");
  data.numbers = numbers_of(report);
  data.facts = facts_of(report);
  data.metrics_file = run + "/metrics.jsonl";
  data.timing_file = run + "/timing.jsonl";
  data.ranks_file = run + "/ranks.jsonl";
  data.timeline_file = run + "/timeline.json";
  data.peak = report.peak;
  data.samples = samples.samples();
  data.samples_note = "held-out, greedy decoding";
  if (!data.samples.empty()) data.samples_note += ", at step " + with_commas(data.samples[0].outputs[0].step);
  data.plan = report.plan;
  data.skipped = skips_by_kind(skips);
  if (report.eval && report.eval->skipped > 0)
    data.skipped.push_back({"held-out, could not be used", report.eval->skipped, report.eval->first_skip});
  data.recipe = write_yaml(job.recipe.tree);
  write_report(run, data);
}

void report_run(const std::string& run, const Job& job, const RunState& state, const EvalResult& result,
                const std::optional<EvalResult>& swapped) {
  EvalOptions options;
  options.generate = job.recipe.eval().get_string("metric") == "exact_match";
  RunReport report;
  report.job = &job;
  report.state = state;
  report.eval = eval_numbers(state.step, options, result);
  if (swapped.has_value()) report.eval->swapped = swapped->exact_match();
  int64_t last = state.step;
  add_last_step(run, report, last);
  report.status = std::max(last, state.step) >= job.recipe.train().get_int("steps") ? "finished" : "interrupted";
  report.plan = planned_or_plain(job);
  SampleLog samples(run + "/samples.jsonl");
  if (options.generate) samples.add(state.step, result.shown);
  const SkipJournal journal(run + "/skips.jsonl");
  write_run_report(run, report, samples, journal.before(std::numeric_limits<uint64_t>::max()));

  Summary summary;
  summary.exact_match = report.eval->exact;
  summary.exact_match_swapped = report.eval->swapped;
  summary.samples = result.samples;
  summary.train_seconds = state.train_seconds;
  summary.steps = state.step;
  write_summary(run, summary);
}

}  // namespace loom
