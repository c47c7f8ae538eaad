#include "core/model/generator.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace loom {
namespace {

ModelBatch next_rows(const std::vector<int64_t>& tokens, const KvCache& cache) {
  ModelBatch batch;
  batch.tokens = at::tensor(at::ArrayRef<int64_t>(tokens), at::kLong);
  batch.loss_rows = at::arange(static_cast<int64_t>(tokens.size()), at::kLong);
  Segments& rows = batch.text[""];
  for (size_t s = 0; s < tokens.size(); ++s) rows.append(1, {s, 0, cache.lengths()[s]}, {cache.lengths()[s]});
  return batch;
}

}  // namespace

std::vector<std::vector<int64_t>> generate_greedy(MultimodalModel& model, const ModelBatch& prompts,
                                                  const GenerateOptions& options) {
  const Segments& text = prompts.text.at("");
  LOOM_CHECK(prompts.loss_rows.size(0) == text.count(), "one last row per prompt is needed");
  int64_t longest = 0;
  for (int64_t s = 0; s < text.count(); ++s) longest = std::max(longest, text.length(s));
  std::vector<std::vector<int64_t>> out(text.count());
  if (text.count() == 0 || options.max_new_tokens <= 0) return out;

  KvCache cache(text.count(), longest + options.max_new_tokens);
  std::vector<int64_t> live(text.count());  // which output each sequence of the cache writes to
  for (size_t s = 0; s < live.size(); ++s) live[s] = static_cast<int64_t>(s);
  Tensor logits = model.logits(prompts, cache);
  for (int64_t n = 0; n < options.max_new_tokens; ++n) {
    const Tensor best = logits.argmax(1);
    std::vector<int64_t> tokens, kept, still;
    for (size_t s = 0; s < live.size(); ++s) {
      const int64_t token = best.data_ptr<int64_t>()[s];
      if (token == options.end_token) continue;
      out[live[s]].push_back(token);
      tokens.push_back(token);
      kept.push_back(static_cast<int64_t>(s));
      still.push_back(live[s]);
    }
    if (tokens.empty() || n + 1 == options.max_new_tokens) break;
    if (kept.size() < live.size()) cache.select(kept);
    live = std::move(still);
    logits = model.logits(next_rows(tokens, cache), cache);
  }
  return out;
}

}  // namespace loom
