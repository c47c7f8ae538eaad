#include "pipelines/evaluator.h"

#include <chrono>

#include "core/base/error.h"
#include "core/base/signal.h"
#include "core/data/batch_builder.h"
#include "core/model/generator.h"

namespace loom {
namespace {

using Clock = std::chrono::steady_clock;

struct Chunk {
  std::vector<PreparedSample> samples;
  std::vector<Tensor> pictures;  // first medium of each sample, as it was read
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
  std::vector<int64_t> ids;
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    if (sample.supervised[t] != 0 && sample.tokens[t] != tokenizer.eos()) ids.push_back(sample.tokens[t]);
  }
  return tokenizer.decode(ids);
}

Tensor first_picture(const RawSample& raw) {
  for (const SamplePart& part : raw.parts) {
    if (part.kind == SamplePart::Kind::media && part.media.data.dim() == 4) return part.media.data[0];
  }
  return {};
}

struct Evaluation {
  MultimodalModel& model;
  const Tokenizer& tokenizer;
  const Preparer& preparer;
  const EvalOptions& options;
  EvalResult result;
  double loss_sum = 0;
  int64_t supervised = 0;

  void score(const Chunk& chunk) {
    const ModelBatch batch = build_batch(pointers(chunk), batch_modalities(model));
    loss_sum -= model.log_probs(batch).to(at::kDouble).sum().item<double>();
    supervised += batch.targets.size(0);
  }

  void run(Chunk& chunk) {
    if (options.swapped) swap_media(chunk);
    if (!options.swapped) score(chunk);
    std::vector<std::vector<int64_t>> answers(chunk.samples.size());
    if (options.generate) {
      answers =
          generate(model, build_prompt_batch(pointers(chunk), model), {options.max_new_tokens, tokenizer.ends()});
    }
    for (size_t i = 0; i < chunk.samples.size(); ++i) {
      EvalSample sample{chunk.samples[i].verdict.name, truth_of(chunk.samples[i], tokenizer),
                        tokenizer.decode(answers[i]), chunk.pictures[i], false};
      sample.correct = options.generate && sample.output == sample.truth;
      result.exact += sample.correct ? 1 : 0;
      if (static_cast<int64_t>(result.shown.size()) < options.show) result.shown.push_back(std::move(sample));
    }
    result.samples += static_cast<int64_t>(chunk.samples.size());
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
  int64_t total = 0;
  for (const auto& source : sources) total += source->size();
  if (options.samples > 0) total = std::min(total, options.samples);
  Evaluation evaluation{model, tokenizer, preparer, options, {}, 0, 0};
  Chunk chunk;
  int64_t read = 0;
  const auto flush = [&] {
    if (!chunk.samples.empty()) evaluation.run(chunk);
    chunk = {};
    if (progress) progress(read, total);
  };
  for (const auto& source : sources) {
    for (int64_t i = 0; i < source->size() && read < total && !stop_requested(); ++i, ++read) {
      RawSample raw;
      PreparedSample sample = preparer.prepare(*source, i, 0, 0, &raw);
      if (!sample.verdict.ok) {
        ++evaluation.result.skipped;
        continue;
      }
      chunk.pictures.push_back(first_picture(raw));
      chunk.samples.push_back(std::move(sample));
      if (static_cast<int64_t>(chunk.samples.size()) == options.batch) flush();
    }
  }
  flush();
  EvalResult result = std::move(evaluation.result);
  result.loss = evaluation.supervised > 0 ? evaluation.loss_sum / static_cast<double>(evaluation.supervised) : 0;
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

}  // namespace loom
