// Averages over about 20 steps are for the eye only; files hold the numbers of each step.
#include "pipelines/run_observer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/config/yaml_writer.h"
#include "core/observe/process.h"
#include "core/step/imbalance.h"
#include "pipelines/build_model.h"
#include "pipelines/device.h"
#include "pipelines/machine.h"
#include "pipelines/parallel_section.h"
#include "pipelines/png.h"
#include "pipelines/report_samples.h"

namespace loom {
namespace {

constexpr double kReportShare = 0.05;       // of the run's time that reports may take
constexpr double kReportAfterSave = 5;      // seconds between reports that only a save asks for
constexpr int64_t kPicturesInEvents = 256;  // pixels

// The folder that holds the run's folder, as an argument of a shell.
std::string parent_of(const std::string& run) {
  std::string path = run;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::string parent = std::filesystem::path(path).parent_path().string();
  if (parent.empty()) parent = ".";
  return parent.find_first_of(" '\"$&;()") == std::string::npos ? parent : "'" + parent + "'";
}

// Four spaces make a block that every reader of Markdown shows as it is.
std::string as_block(const std::string& text) {
  std::string out;
  for (const std::string& line : split(text, '\n')) out += "    " + line + "\n";
  return out;
}

// A cell of a Markdown table.
std::string as_cell(const std::string& text) {
  std::string out;
  for (const char c : utf8_cut(text, 300)) {
    if (c == '|' || c == '<') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// Shares of the step's samples, by source. Of one source there is nothing to tell.
void add_mix(MetricsLine& line, const StepPlan& plan, const SampleOrder& order) {
  const size_t sources = order.sources().size();
  if (sources < 2 || plan.samples.empty()) return;
  std::vector<int64_t> counts(sources, 0);
  for (const Verdict& verdict : plan.samples) ++counts[static_cast<size_t>(order.at(verdict.position).source)];
  for (size_t s = 0; s < sources; ++s)
    line.add("mix/" + order.sources()[s].name,
             static_cast<double>(counts[s]) / static_cast<double>(plan.samples.size()));
}

}  // namespace

double packed_fill(const StepPlan& plan) {
  const double room = static_cast<double>(plan.budget) * static_cast<double>(plan.microbatches.size()) *
                      static_cast<double>(plan.layout.lanes());
  return room > 0 ? static_cast<double>(plan.tokens) / room : 0;
}

RunObserver::RunObserver(const Job& job, std::string run, int64_t training_samples)
    : job_(job),
      run_(std::move(run)),
      steps_(job.recipe.train().get_int("steps")),
      metrics_(run_ + "/metrics.jsonl"),
      timing_(run_ + "/timing.jsonl"),
      ranks_(run_, job.layout, steps_, job.model->components().size()),
      samples_(run_ + "/samples.jsonl") {
  report_.job = &job_;
  report_.samples = training_samples;
  report_.ranks = job.layout.world;
  report_.plan = plain_plan(job_);
}

RunObserver::~RunObserver() = default;

void RunObserver::begin(const RunState& state, bool resumed) {
  report_.state = state;
  if (resumed) {
    metrics_.truncate_after(state.step);
    timing_.truncate_after(state.step);
    ranks_.truncate_after(state.step);
    samples_.truncate_after(state.step);
  }
  events_ = std::make_unique<TensorBoardWriter>(run_, resumed ? state.step + 1 : 0);
  events_->text(state.step, "model", model_line(job_));
  events_->text(state.step, "recipe", as_block(write_yaml(job_.recipe.tree)));
  events_->flush();
}

void RunObserver::print_head() {
  const std::string precision = job_.recipe.train().get_string("precision");
  const std::string threads = concat(job_.threads, job_.threads == 1 ? " thread" : " threads");
  std::vector<std::string> remarks;
  const bool gpu = job_.device.is_cuda();
  if (!gpu && !this_machine().native_bf16) remarks.push_back("no native bf16");
  const std::string kind = job_.place.world == 1               ? "loopback"
                           : job_.place.launcher == "omniloom" ? "processes"
                                                               : job_.place.launcher;
  const std::string ranks =
      alone() ? concat("1 rank · ", device_text(job_.device), ", ", threads)
              : concat(job_.layout.world, " ranks (", kind, ") · ", device_text(job_.device), ", ", threads, " each");
  log_info("omniloom ", kVersion, " · ", ranks, ", ", precision,
           remarks.empty() ? "" : " (" + join(remarks, "; ") + ")");
  log_info("model   ", model_line(job_));
  if (!alone()) {
    for (const std::string& line : layout_lines(job_.layout, *job_.model)) log_info("layout  ", line);
  }
}

// After the first step, so that nobody waits for it. Ranks that are threads share the machine: no share of a peak could
// be told.
void RunObserver::measure_peak() {
  if (!alone() || report_.peak > 0) return;
  const std::string precision = job_.recipe.train().get_string("precision");
  const at::ScalarType dtype = compute_type(precision);
  report_.peak = job_.device.is_cuda() ? measured_gpu_peak(dtype) : measured_gemm_peak(dtype, job_.threads);
  if (report_.peak > 0) log_info("peak    ", human_flops(report_.peak), " measured, matrix products in ", precision);
}

void RunObserver::print_data(const StepPlan* first) {
  const size_t sources = job_.recipe.data().at("train").items().size();
  log_info("data    ", with_commas(report_.samples), " samples in ", sources, " source", sources == 1 ? "" : "s",
           " · budget ", job_.recipe.data().get_int("budget"),
           first == nullptr ? "" : " · packed " + percent_text(packed_fill(*first)) + " full");
  log_info("run     ", run_, " · TensorBoard: tensorboard --logdir ", parent_of(run_));
  progress_ = std::make_unique<Progress>(stderr, ProgressPolicy::detect(stderr));
}

MetricsLine RunObserver::metrics_of(const StepPlan& plan, const StepStats& stats, const StepTime& time,
                                    const StepLoader& loader) {
  const double seconds = std::max(time.seconds, 1e-9);
  MetricsLine line{stats.step, {}};
  line.add("loss", stats.loss).add("lr", stats.lr).add("grad_norm", stats.grad_norm);
  line.add("samples", stats.samples).add("tokens", stats.tokens).add("supervised", stats.supervised);
  line.add("microbatches", stats.microbatches).add("packed_fill", packed_fill(plan));
  line.add("skipped", loader.state().skipped).add("left_out", loader.state().left_out);
  line.add("seconds", time.seconds).add("data_seconds", time.data);
  add_times(line, time, alone());
  line.add("tokens_per_second", static_cast<double>(stats.tokens) / seconds);
  if (cost_ != nullptr) {
    const double rate = cost_->flops(plan) / seconds;
    line.add("flops_per_second", rate);
    if (report_.peak > 0) line.add("peak_share", rate / report_.peak);
  }
  for (const auto& [name, value] : std::exchange(told_, {})) line.add(name, value);
  if (stats.peak_bytes > 0) line.add("tensor_peak", stats.peak_bytes);
  const ProcessMemory memory = process_memory();
  if (memory.resident > 0) line.add("rss", memory.resident).add("rss_peak", memory.peak);
  report_.memory_peak = memory.peak;
  if (!alone()) {
    line.add("bytes_sent", stats.bytes_sent);
    for (const auto& [component, ratio] : imbalance_of(plan)) line.add("imbalance/" + component, ratio);
  }
  for (const auto& [name, value] : stats.interior) line.add("loss/" + name, value);
  add_mix(line, plan, loader.order());
  return line;
}

void RunObserver::step_done(const StepPlan& plan, const StepStats& stats, const StepTime& time,
                            const StepLoader& loader, const RunState& state) {
  report_.state = state;
  measure_peak();
  line_ = metrics_of(plan, stats, time, loader);
  evaluated_ = false;
  times_.add(stats.step, time);
  write_timing(plan, time);
  show(plan, stats, time);
}

// Other ranks' shares of an operation are not seen here, so a unit's rate is only told of one rank.
void RunObserver::write_timing(const StepPlan& plan, const StepTime& time) {
  const int64_t every = timing_interval(steps_, time.units.size());
  if (line_.step % every != 0 && line_.step != steps_) return;
  std::map<std::string, double> flops;
  if (cost_ != nullptr && alone()) flops = cost_->units(plan);
  timing_.write_json(timing_json(line_.step, time, flops));
}

void RunObserver::show(const StepPlan& plan, const StepStats& stats, const StepTime& time) {
  const double keep = seconds_per_step_ == 0 ? 0 : 0.95;
  const double seconds = std::max(time.seconds, 1e-9);
  const auto average = [&](double& value, double latest) { value = keep * value + (1 - keep) * latest; };
  average(seconds_per_step_, seconds);
  average(tokens_per_second_, static_cast<double>(stats.tokens) / seconds);
  average(data_fraction_, time.data / seconds);
  average(flops_per_second_, line_.number("flops_per_second", 0));
  shown_.step = stats.step;
  shown_.steps = steps_;
  shown_.loss = stats.loss;
  shown_.tokens_per_second = tokens_per_second_;
  shown_.data_fraction = data_fraction_;
  shown_.seconds_left = seconds_per_step_ * static_cast<double>(steps_ - stats.step);
  if (cost_ != nullptr) {
    shown_.flops_per_second = flops_per_second_;
    if (report_.peak > 0) shown_.peak_share = flops_per_second_ / report_.peak;
    report_.flops_per_second = flops_per_second_;
  }
  report_.loss = stats.loss;
  report_.tokens_per_second = tokens_per_second_;
  report_.packed_fill = packed_fill(plan);
  progress_->update(shown_);
}

void RunObserver::evaluated(const EvalOptions& options, const EvalResult& result) {
  evaluated_ = true;
  report_.eval = eval_numbers(line_.step, options, result);
  line_.add("eval_loss", result.loss);
  shown_.eval = result.loss;
  if (options.generate) {
    line_.add("exact_match", result.exact_match());
    shown_.exact = result.exact_match();
    samples_.append(line_.step, result.shown);
    write_samples_text(result);
  }
  if (result.token_accuracy().has_value()) line_.add("token_accuracy", *result.token_accuracy());
  line_.add("eval_samples", result.samples).add("eval_seconds", result.seconds);
  progress_->update(shown_);
}

// Answers as a table under TEXT; the pictures once, since they are the same ones at every evaluation.
void RunObserver::write_samples_text(const EvalResult& result) {
  if (result.shown.empty()) return;
  std::string table = "| | prompt | truth | output |\n|---|---|---|---|\n";
  for (size_t i = 0; i < result.shown.size(); ++i) {
    const EvalSample& sample = result.shown[i];
    table += concat("| ", i + 1, sample.correct ? " ✓" : "", " | ", as_cell(sample.prompt), " | ",
                    as_cell(sample.truth), " | ", as_cell(sample.output), " |\n");
    if (pictures_in_events_ || !sample.picture.defined()) continue;
    events_->picture(line_.step, concat("samples/", i + 1), encode_png(scaled_down(sample.picture, kPicturesInEvents)),
                     sample.truth);
  }
  pictures_in_events_ = true;
  events_->text(line_.step, "samples", table);
}

void RunObserver::end_step(const StepLoader& loader) {
  metrics_.write(line_);
  events_->metrics(line_);
  events_->flush();
  if (evaluated_ && report_due(0)) write_report(loader);
}

void RunObserver::saved(const StepLoader& loader) {
  if (!evaluated_ && report_due(kReportAfterSave)) write_report(loader);
}

bool RunObserver::report_due(double at_least_seconds) const {
  return reported_at_ < 0 ||
         system_clock_seconds() - reported_at_ >= std::max(at_least_seconds, report_cost_ / kReportShare);
}

void RunObserver::write_report(const StepLoader& loader) {
  const double start = system_clock_seconds();
  if (report_.status.empty()) report_.status = "running";
  write_run_report(run_, report_, samples_, loader.skips());
  reported_at_ = system_clock_seconds();
  report_cost_ = reported_at_ - start;
}

void RunObserver::end(const RunState& state, const std::string& status, const std::string& note,
                      const StepLoader& loader) {
  if (progress_ != nullptr) progress_->finish();
  progress_.reset();
  if (status != "failed" && !times_.empty()) log_info("time    ", times_.line());
  if (status != "failed" && !ranks_.totals().empty()) log_info("ranks   ", ranks_.totals().line());
  report_.state = state;
  report_.status = status;
  report_.note = note;
  write_report(loader);
}

}  // namespace loom
