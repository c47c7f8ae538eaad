// `omniloom data preview`: a page with some samples as the model gets them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "pipelines/cli.h"
#include "pipelines/data_preview.h"
#include "pipelines/job.h"
#include "pipelines/read_ahead.h"

namespace loom {
namespace {

struct PreviewFlags {
  std::string recipe, out = "preview.html", split = "train";
  int64_t samples = 24;
  std::vector<std::string> overrides;
};

int preview(const PreviewFlags& flags) {
  const std::vector<std::string> splits = {"train", "eval"};
  LOOM_CHECK_USER(flags.split == "train" || flags.split == "eval", "--split: expected train or eval, found ",
                  quote_text(flags.split), did_you_mean(flags.split, splits));
  LOOM_CHECK_USER(flags.samples >= 1 && flags.samples <= 1000, "--samples ", flags.samples, ": expected 1 to 1000");
  const Job job = make_job(flags.recipe, flags.overrides);
  PreviewPage page;
  page.title = job.recipe.name();
  page.split = flags.split;
  std::vector<std::pair<const Source*, int64_t>> places;  // every sample's source is the last that begins before it
  const auto sources = job.sources(flags.split.c_str());
  for (const auto& source : sources) {
    job.preparer->check_source(*source);
    if (source->size() > 0) places.emplace_back(source.get(), page.total);
    page.total += source->size();
  }
  LOOM_CHECK_USER(page.total > 0, "data.", flags.split, " holds no samples");
  const int64_t count = std::min(flags.samples, page.total);
  // Drawn, not every n-th: data often has a rhythm. The same ones each time.
  const Philox random({.seed = static_cast<uint64_t>(page.total), .purpose = Purpose::shuffle});
  std::vector<int64_t> picked;
  for (int64_t i = 0; i < count; ++i)
    picked.push_back(
        static_cast<int64_t>(permute_index(random, static_cast<uint64_t>(page.total), static_cast<uint64_t>(i))));
  std::sort(picked.begin(), picked.end());
  read_ahead(
      job.pool.get(), count, 2 * job.pool->size(),
      [&](int64_t i) {
        const int64_t at = picked[static_cast<size_t>(i)];
        size_t source = places.size() - 1;
        while (places[source].second > at) --source;
        return preview_sample(*job.preparer, *places[source].first, at - places[source].second);
      },
      [&](int64_t, PreviewSample&& sample) { page.samples.push_back(std::move(sample)); });
  if (stop_requested()) return stop_exit_code();
  const std::string html = preview_html(page);
  const std::filesystem::path folder = std::filesystem::path(flags.out).parent_path();
  if (!folder.empty()) make_dirs(folder.string());
  write_file_atomic(flags.out, html);
  std::printf("%s · %lld samples of data.%s · %s\n", flags.out.c_str(), static_cast<long long>(count),
              flags.split.c_str(), human_bytes(static_cast<double>(html.size())).c_str());
  return 0;
}

}  // namespace

void add_data_preview_command(CLI::App& data, Command& run) {
  CLI::App* command = data.add_subcommand(
      "preview", "a page with some samples: pictures as the model sees them, tokens coloured by what is learned");
  const auto flags = std::make_shared<PreviewFlags>();
  command->add_option("recipe", flags->recipe, "recipe.yaml")->required();
  command->add_option("--samples", flags->samples, "how many, drawn at random")->capture_default_str();
  command->add_option("--out", flags->out, "page to write")->capture_default_str();
  command->add_option("--split", flags->split, "train or eval")->capture_default_str();
  command->allow_extras();
  command->callback([command, flags, &run] {
    flags->overrides = command->remaining();
    run = [flags] { return preview(*flags); };
  });
}

}  // namespace loom
