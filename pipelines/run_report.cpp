#include "pipelines/run_report.h"

#include <cstdio>

#include "core/base/text.h"
#include "core/base/version.h"
#include "core/config/yaml_writer.h"
#include "core/observe/metrics.h"
#include "pipelines/report.h"

namespace loom {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * share);
  return text;
}

std::string decimals(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

}  // namespace

void report_run(const std::string& run, const Job& job, const RunState& state, const EvalResult& result,
                const std::optional<EvalResult>& swapped) {
  const ConfigValue& train = job.recipe.train();
  const bool generated = job.recipe.eval().get_string("metric") == "exact_match";
  ReportData data;
  data.title = job.recipe.name();
  data.subtitle = model_line(job);
  data.step = state.step;
  data.steps = train.get_int("steps");
  data.state = state.step >= data.steps ? "finished" : "interrupted";
  const std::string count = with_commas(result.samples) + " held-out samples";
  if (generated) data.numbers.push_back({"Exact match", percent(result.exact_match()), count});
  if (swapped.has_value()) {
    data.numbers.push_back(
        {"With swapped media", percent(swapped->exact_match()), "each sample shown another one's picture"});
  }
  data.numbers.push_back({"Held-out loss", decimals(result.loss), "per supervised token"});
  data.numbers.push_back({"Training time", human_duration(state.train_seconds), with_commas(state.step) + " steps"});
  data.facts = {{"Omniloom", kVersion},
                {"Device", "cpu, " + std::to_string(job.threads) + (job.threads == 1 ? " thread" : " threads")},
                {"Precision", train.get_string("precision")},
                {"Batch", train.at("batch").text()},
                {"Samples seen", with_commas(state.samples)},
                {"Tokens seen", with_commas(state.tokens)},
                {"Seed", std::to_string(train.get_int("seed"))}};
  data.metrics_file = run + "/metrics.jsonl";
  for (const EvalSample& sample : result.shown)
    data.samples.push_back({sample.picture, sample.truth, sample.output, sample.correct});
  data.samples_note = "the first of the held-out samples, greedy decoding";
  if (result.skipped > 0) {
    ReportSkip& skip = data.skipped.emplace_back();
    skip.reason = "held-out, could not be used";
    skip.count = result.skipped;
  }
  data.recipe = write_yaml(job.recipe.tree);
  write_report(run, data);

  Summary summary;
  if (generated) summary.exact_match = result.exact_match();
  if (swapped.has_value()) summary.exact_match_swapped = swapped->exact_match();
  summary.samples = result.samples;
  summary.train_seconds = state.train_seconds;
  summary.steps = state.step;
  write_summary(run, summary);
}

}  // namespace loom
