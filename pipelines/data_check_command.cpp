// `omniloom data check`: every sample is read and prepared as training would do it, counted, and dropped. With a recipe
// the model is made for its encoders, never run; a file or folder alone is read with the bytes tokenizer.
#include <cstdio>
#include <memory>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/observe/progress.h"
#include "pipelines/cli.h"
#include "pipelines/data_stats.h"
#include "pipelines/job.h"
#include "pipelines/json_lines.h"
#include "pipelines/mix_section.h"
#include "pipelines/path_source.h"
#include "pipelines/read_ahead.h"

namespace loom {
namespace {

using Sources = std::vector<std::shared_ptr<Source>>;

constexpr int64_t kAheadPerThread = 8;
constexpr double kUsualSkipRate = 0.05;
constexpr int64_t kNoBudget = int64_t{1} << 40;

struct CheckFlags {
  std::vector<std::string> what;
  std::string list;
  std::vector<std::string> overrides;
};

// Stands in for an encoder where there is no model: every picture is one token.
class PictureCounter : public Encoder {
 public:
  void run(int, Streams&, UnitContext&) override { throw InternalError("a picture counter is never run"); }
  int64_t width() const override { return 1; }
  int64_t media_width() const override { return 1; }
  ItemMeta measure(const MediaInfo&) const override { return {1, 1, 0, {}}; }
  Tensor prepare(const Media&, const Philox&) const override { return at::zeros({1, 1}, at::kFloat); }
};

class DataCheck {
 public:
  explicit DataCheck(const std::string& list) {
    if (!list.empty()) list_ = std::make_unique<JsonLines>(list);
  }

  void check_recipe(const std::string& file, const std::vector<std::string>& overrides) {
    const Job job = make_job(file, overrides);
    const double rate = job.recipe.data().get_number("max_skip_rate");
    std::printf("%s · %s\n", file.c_str(), model_line(job).c_str());
    const Sources train = job.sources("train");
    std::printf("data.train\n");
    const std::vector<SourceStats> stats = check(train, *job.preparer, *job.pool);
    if (!stop_requested()) print_epoch(job, train, stats);
    judge("data.train", stats, rate);
    const bool given = !job.recipe.data().at("eval").items().empty();
    const double share = job.recipe.data().get_number("hold_out");
    if ((!given && share <= 0) || stop_requested()) return;
    std::printf("%s\n", given ? "data.eval" : "data.eval · held out of data.train");
    judge("data.eval", check(job.sources("eval"), *job.preparer, *job.pool), rate);
  }

  void check_path(const std::string& path, int number) {
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(ConfigValue::string("bytes"));
    const PictureCounter pictures;
    PreparerOptions options;
    options.modalities["image"].encoder = &pictures;
    options.tokenizer = tokenizer.get();
    options.budget = kNoBudget;
    const Preparer preparer(options);
    ThreadPool pool(std::max(2, static_cast<int>(std::thread::hardware_concurrency())));
    std::printf("%s · read and decoded without a model; a token is a byte, a picture counts as one\n", path.c_str());
    judge(path, check({source_at(path, number)}, preparer, pool), kUsualSkipRate);
  }

  int finish() {
    if (list_ != nullptr) list_->flush();
    if (stop_requested()) return stop_exit_code();
    if (!verdict_.empty()) throw UserError(verdict_);
    return 0;
  }

 private:
  std::vector<SourceStats> check(const Sources& sources, const Preparer& preparer, ThreadPool& pool) {
    std::vector<SourceStats> out;
    for (const auto& source : sources) {
      if (stop_requested()) break;
      preparer.check_source(*source);
      out.push_back(check_source(*source, preparer, pool));
      print(*source, out.back());
    }
    return out;
  }

  SourceStats check_source(const Source& source, const Preparer& preparer, ThreadPool& pool) {
    SourceStats stats;
    Progress progress(stderr, ProgressPolicy::detect(stderr));
    ProgressState state;
    state.unit = source.name() + "  sample";
    state.steps = source.size();
    read_ahead(
        &pool, source.size(), kAheadPerThread * pool.size(),
        [&](int64_t i) { return check_sample(preparer, source, i); },
        [&](int64_t i, const CheckedSample& sample) {
          stats.add(sample);
          if (!sample.ok) write(source, i, sample);
          state.step = i + 1;
          const int64_t lost = stats.skipped() + stats.left_out();
          state.extra = {{"", lost > 0 ? with_commas(lost) + " not usable" : "all usable"}};
          progress.update(state);
        });
    progress.finish();
    return stats;
  }

  void write(const Source& source, int64_t index, const CheckedSample& sample) {
    if (list_ == nullptr) return;
    list_->write({{"source", source.name()},
                  {"index", index},
                  {"name", sample.name},
                  {"reason", sample.reason},
                  {"left_out", sample.left_out},
                  {"stops", sample.stops}});
  }

  // A folder without captions is no training data, but its pictures can be looked at.
  static std::shared_ptr<Source> source_at(const std::string& path, int number) {
    try {
      return source_of_path(path, number);
    } catch (const UserError& problem) {
      if (!is_folder(path)) throw;
      std::shared_ptr<Source> pictures = source_of_path(path, number, nullptr, "{stem}");
      log_warn(problem.what());
      return pictures;
    }
  }

  static void row(const char* name, const std::string& value) { std::printf("  %-11s %s\n", name, value.c_str()); }

  static void print(const Source& source, const SourceStats& stats) {
    std::printf("%s\n", source.name().c_str());
    std::string samples =
        concat(with_commas(stats.samples()), " · ", with_commas(stats.usable()), " usable · ",
               with_commas(stats.skipped()), " skipped · ", with_commas(stats.left_out()), " left out");
    if (stats.samples() < source.size()) samples += concat(" · stopped; there are ", with_commas(source.size()));
    row("samples", samples);
    row("tokens", stats.tokens_text());
    row("supervised", stats.supervised_text());
    row("pictures", stats.pictures_text().empty() ? "none" : stats.pictures_text());
    for (const SkipGroup& group : stats.groups()) {
      const char* fate = group.stops ? "would stop" : group.left_out ? "left out" : "skipped";
      if (group.count == 1) {
        row(fate, "1 · " + clean_line(group.examples.front()));
        continue;
      }
      row(fate, concat(with_commas(group.count), " · ", group.kind));
      for (const std::string& example : group.examples) row("", clean_line(example));
      if (group.count > static_cast<int64_t>(group.examples.size())) row("", "...");
    }
    std::fflush(stdout);
  }

  static std::string clean_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

  static void print_epoch(const Job& job, const Sources& sources, const std::vector<SourceStats>& stats) {
    std::vector<OrderSource> order;
    for (const auto& source : sources) order.push_back({source->name(), source->size(), source->weight()});
    const BatchSize batch = parse_batch(job.recipe.train().at("batch"));
    const int64_t budget = job.recipe.data().get_int("budget");
    const EpochPlan epoch = plan_epoch(
        SampleOrder(order, static_cast<uint64_t>(job.recipe.train().get_int("seed")),
                    job.recipe.data().get_bool("shuffle"), read_mix(job.recipe.data())),
        batch, budget, [&](int source, int64_t index) { return stats[static_cast<size_t>(source)].tokens_of(index); });
    if (epoch.samples == 0) return;
    char steps[64], packs[96];
    std::snprintf(steps, sizeof steps, "%.1f", epoch.steps);
    std::snprintf(packs, sizeof packs, "%.1f %% full · %.1f per step",
                  100 * static_cast<double>(epoch.tokens) / static_cast<double>(epoch.packs * budget),
                  static_cast<double>(epoch.packs) / epoch.steps);
    std::printf("epoch\n");
    row("samples", concat(with_commas(epoch.samples), " · ", with_commas(epoch.tokens), " tokens"));
    row("steps", concat(steps, " per epoch, of ", batch.str(), " · the run has ",
                        with_commas(job.recipe.train().get_int("steps"))));
    row("packs", concat(packs, " · data.budget ", with_commas(budget)));
  }

  // The first thing that is wrong with the data as a whole.
  void judge(const std::string& what, const std::vector<SourceStats>& all, double rate) {
    int64_t seen = 0, skipped = 0, stopping = 0, usable = 0;
    std::string first;
    for (const SourceStats& stats : all) {
      seen += stats.samples();
      skipped += stats.skipped();
      stopping += stats.stopping();
      usable += stats.usable();
      for (const SkipGroup& group : stats.groups()) {
        if (first.empty() && !group.left_out) first = clean_line(group.examples.front());
      }
    }
    if (!verdict_.empty() || stop_requested()) return;
    const double share = seen > 0 ? static_cast<double>(skipped) / static_cast<double>(seen) : 0;
    char percent[32];
    std::snprintf(percent, sizeof percent, "%.1f %%", 100 * share);
    if (stopping > 0) {
      verdict_ =
          concat(what, ": ", with_commas(stopping), " of ", with_commas(seen), " samples would stop a run: ", first);
    } else if (usable == 0) {
      verdict_ = concat(what, ": no sample can be used", first.empty() ? "" : ": " + first);
    } else if (share > rate) {
      verdict_ = concat(what, ": ", with_commas(skipped), " of ", with_commas(seen), " samples cannot be used (",
                        percent, "), more than data.max_skip_rate = ", rate, ": ", first);
    }
  }

  std::unique_ptr<JsonLines> list_;
  std::string verdict_;
};

bool is_recipe(const std::string& text) { return text.ends_with(".yaml") || text.ends_with(".yml"); }

int data_check(CheckFlags flags) {
  std::vector<std::string> things;
  for (const std::string& text : flags.what) {
    const bool sets_key = text.find('=') != std::string::npos && !is_file(text) && !is_folder(text);
    (sets_key ? flags.overrides : things).push_back(text);
  }
  LOOM_CHECK_USER(!things.empty(), "nothing to check; give a recipe, a file of samples or a folder of pictures");
  bool recipes = false;
  for (const std::string& text : things) recipes = recipes || is_recipe(text);
  LOOM_CHECK_USER(recipes || flags.overrides.empty(), flags.overrides.empty() ? "" : flags.overrides.front(),
                  ": sets a key of a recipe, and no recipe (.yaml) is given");
  DataCheck check(flags.list);
  int number = 0;
  for (const std::string& text : things) {
    if (stop_requested()) break;
    if (is_recipe(text)) {
      check.check_recipe(text, flags.overrides);
    } else {
      check.check_path(text, number++);
    }
  }
  return check.finish();
}

}  // namespace

void add_data_check_command(CLI::App& data, Command& run) {
  CLI::App* command = data.add_subcommand(
      "check", "read and prepare every sample: what is there, what cannot be used and why, how it packs");
  const auto flags = std::make_shared<CheckFlags>();
  command
      ->add_option("what", flags->what,
                   "recipes (.yaml), files of samples (.jsonl, .json) or folders of pictures; key=value sets a key "
                   "of the recipes")
      ->required();
  command->add_option("--list", flags->list, "write every sample that cannot be used to this file (.jsonl)");
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return data_check(*flags); };
  });
}

}  // namespace loom
