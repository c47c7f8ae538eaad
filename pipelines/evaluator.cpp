#include "pipelines/evaluator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <ATen/ATen.h>

#include "core/base/signal.h"
#include "core/data/batch_builder.h"
#include "pipelines/answers.h"
#include "pipelines/passes.h"
#include "pipelines/png.h"
#include "pipelines/read_ahead.h"

namespace loom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBudgetsPerChunk = 16;
constexpr int64_t kLargestShown = 512;  // pixels

// Samples that are in memory together, and so can be shown each other's media.
struct Chunk {
  std::vector<PreparedSample> samples;
  std::vector<std::string> prompts;
  std::vector<Tensor> pictures;  // first medium of each sample, as it was read; where it may be shown
  int64_t tokens = 0;
};

std::vector<const PreparedSample*> pointers(const Chunk& chunk) {
  std::vector<const PreparedSample*> out;
  for (const PreparedSample& sample : chunk.samples) out.push_back(&sample);
  return out;
}

// Gives every sample the media of the next one that has media of the same kinds and sizes.
void swap_media(Chunk& chunk) {
  const auto fits = [&](size_t a, size_t b) {
    const auto &x = chunk.samples[a].verdict.items, &y = chunk.samples[b].verdict.items;
    bool same = x.size() == y.size();
    for (size_t i = 0; same && i < x.size(); ++i)
      same = x[i].modality == y[i].modality && x[i].meta.tokens == y[i].meta.tokens;
    return same;
  };
  const size_t n = chunk.samples.size();
  std::vector<std::vector<Tensor>> media(n);
  std::vector<Tensor> pictures(n);
  for (size_t i = 0; i < n; ++i) {
    size_t from = (i + 1) % n;
    while (from != i && !fits(i, from)) from = (from + 1) % n;
    media[i] = chunk.samples[from].media;
    pictures[i] = chunk.pictures[from];
  }
  for (size_t i = 0; i < n; ++i) chunk.samples[i].media = std::move(media[i]);
  chunk.pictures = std::move(pictures);
}

std::string truth_of(const PreparedSample& sample, const Tokenizer& tokenizer) {
  const std::vector<int64_t> ends = tokenizer.ends();
  std::vector<int64_t> ids;
  for (auto t = static_cast<size_t>(answer_begin(sample)); t < sample.tokens.size() && sample.supervised[t] != 0; ++t) {
    if (std::find(ends.begin(), ends.end(), sample.tokens[t]) == ends.end()) ids.push_back(sample.tokens[t]);
  }
  return tokenizer.decode(ids);
}

Tensor first_picture(const RawSample& raw) {
  for (const SamplePart& part : raw.parts) {
    if (part.kind == SamplePart::Kind::media && part.media.data.dim() == 4)
      return scaled_down(part.media.data[0], kLargestShown);
  }
  return {};
}

// What is kept of a sample that was read.
struct ReadSample {
  PreparedSample sample;
  std::string prompt;
  Tensor picture;
};

struct Evaluation {
  MultimodalModel& model;
  const Tokenizer& tokenizer;
  const Preparer& preparer;
  const EvalOptions& options;
  EvalResult result{};
  double loss_sum = 0;
  double correct = 0;
  bool says_correct = true;

  // Log-probabilities are summed over the chunk, whatever passes it was cut into.
  void score(const Chunk& chunk) {
    std::vector<int64_t> tokens;
    for (const PreparedSample& sample : chunk.samples) tokens.push_back(sample.verdict.tokens);
    const std::vector<const PreparedSample*> samples = pointers(chunk);
    const BatchModalities modalities = batch_modalities(model);
    std::vector<Tensor> log_probs;
    for (const auto& [begin, end] : split_passes(tokens, preparer.options().budget)) {
      const BatchScores scores = model.score(build_batch(
          {samples.begin() + static_cast<std::ptrdiff_t>(begin), samples.begin() + static_cast<std::ptrdiff_t>(end)},
          modalities));
      log_probs.push_back(scores.log_probs);
      says_correct = says_correct && scores.correct.defined();
      if (says_correct) correct += scores.correct.to(at::kDouble).sum().item<double>();
    }
    const Tensor all = at::cat(log_probs).to(at::kDouble);
    loss_sum -= all.sum().item<double>();
    result.supervised += all.size(0);
  }

  std::vector<std::vector<int64_t>> answers(const Chunk& chunk) {
    GenerateOptions how;
    how.max_new_tokens = options.max_new_tokens;
    how.end_tokens = tokenizer.ends();
    how.on_token = [](int64_t, int64_t) { return !stop_requested(); };
    return generate_in_passes(model, pointers(chunk), how, preparer.options().budget);
  }

  void run(Chunk& chunk) {
    if (stop_requested()) return;
    if (options.swapped) swap_media(chunk);
    if (!options.swapped) score(chunk);
    std::vector<std::vector<int64_t>> said(chunk.samples.size());
    if (options.generate) said = answers(chunk);
    if (stop_requested()) return;
    for (size_t i = 0; i < chunk.samples.size(); ++i) {
      EvalSample sample;
      sample.name = chunk.samples[i].verdict.name;
      sample.prompt = std::move(chunk.prompts[i]);
      sample.truth = truth_of(chunk.samples[i], tokenizer);
      sample.output = tokenizer.decode(said[i]);
      sample.correct = options.generate && sample.output == sample.truth;
      result.exact += sample.correct ? 1 : 0;
      if (options.on_answer) options.on_answer(sample);
      if (static_cast<int64_t>(result.shown.size()) >= options.show) continue;
      sample.picture = std::move(chunk.pictures[i]);
      result.shown.push_back(std::move(sample));
    }
    result.samples += static_cast<int64_t>(chunk.samples.size());
  }

  // True when the chunk is full.
  bool take(Chunk& chunk, ReadSample&& read) {
    const Verdict& verdict = read.sample.verdict;
    if (!verdict.ok || verdict.supervised == 0) {
      ++result.skipped;
      if (result.first_skip.empty())
        result.first_skip = verdict.name + ": " + (verdict.ok ? "nothing in it is supervised" : verdict.reason);
      return false;
    }
    chunk.tokens += verdict.tokens;
    chunk.prompts.push_back(std::move(read.prompt));
    chunk.pictures.push_back(std::move(read.picture));
    chunk.samples.push_back(std::move(read.sample));
    return static_cast<int64_t>(chunk.samples.size()) >= options.batch ||
           chunk.tokens >= kBudgetsPerChunk * preparer.options().budget;
  }
};

}  // namespace

EvalOptions read_eval_options(const ConfigValue& eval) {
  EvalOptions options;
  options.samples = eval.get_int("samples");
  options.batch = eval.get_int("batch");
  options.max_new_tokens = eval.get_int("max_new_tokens");
  options.generate = eval.get_string("metric") == "exact_match";
  return options;
}

EvalResult evaluate(MultimodalModel& model, const Tokenizer& tokenizer, const Preparer& preparer,
                    const std::vector<std::shared_ptr<Source>>& sources, const EvalOptions& options,
                    const std::function<void(int64_t, int64_t)>& progress) {
  const auto begin = Clock::now();
  std::vector<std::pair<const Source*, int64_t>> places;  // first sample of each source
  int64_t total = 0;
  for (const auto& source : sources) {
    places.emplace_back(source.get(), total);
    total += source->size();
  }
  if (options.samples > 0) total = std::min(total, options.samples);
  Evaluation evaluation{model, tokenizer, preparer, options};
  const auto read = [&](int64_t i) {
    const auto after = std::find_if(places.begin(), places.end(), [&](const auto& place) { return place.second > i; });
    const auto& [source, first] = *(after - 1);
    RawSample raw;
    ReadSample out;
    out.sample = preparer.prepare(*source, i - first, 0, 0, &raw);
    if (options.show > 0 || options.on_answer) out.prompt = prompt_text(raw);
    if (options.show > 0 && out.sample.verdict.ok) out.picture = first_picture(raw);
    return out;
  };
  Chunk chunk;
  int64_t done = 0, told = -1;
  const auto flush = [&] {
    if (!chunk.samples.empty()) evaluation.run(chunk);
    chunk = {};
    if (progress && done != told) progress(done, total);
    told = done;
  };
  const int64_t ahead = options.pool != nullptr ? 2 * options.pool->size() : 1;
  read_ahead(options.pool, total, ahead, read, [&](int64_t, ReadSample&& sample) {
    ++done;
    if (evaluation.take(chunk, std::move(sample))) flush();
  });
  flush();
  EvalResult result = std::move(evaluation.result);
  if (result.supervised > 0) result.loss = evaluation.loss_sum / static_cast<double>(result.supervised);
  if (evaluation.says_correct && result.supervised > 0)
    result.correct_tokens = static_cast<int64_t>(evaluation.correct);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

}  // namespace loom
