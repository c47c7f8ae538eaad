#include "core/model/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/random.h"

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

// One token per row of logits; `position` counts the answer's tokens. `keys` are those of the live sequences.
std::vector<int64_t> pick_tokens(const Tensor& logits, const std::vector<uint64_t>& keys, int64_t position,
                                 const Sampling& sampling) {
  std::vector<int64_t> out;
  if (sampling.temperature <= 0) {
    const Tensor best = logits.argmax(1).cpu();
    out.assign(best.const_data_ptr<int64_t>(), best.const_data_ptr<int64_t>() + best.size(0));
    return out;
  }
  const Tensor host = logits.cpu();
  for (size_t row = 0; row < keys.size(); ++row) {
    const Philox random({.seed = sampling.seed, .purpose = Purpose::sample, .sample = keys[row]});
    out.push_back(
        pick_token(host[static_cast<int64_t>(row)], sampling, random.uniform(static_cast<uint64_t>(position))));
  }
  return out;
}

}  // namespace

int64_t pick_token(const Tensor& logits, const Sampling& sampling, double draw) {
  LOOM_CHECK(logits.dim() == 1 && logits.size(0) > 0, "logits ", logits.sizes());
  if (sampling.temperature <= 0) return logits.argmax().item<int64_t>();
  // Relative to the largest, so that no temperature is too small.
  const Tensor scaled = (logits.to(at::kDouble) - logits.max().to(at::kDouble)) / sampling.temperature;
  const auto [sorted, order] = scaled.sort(/*stable=*/true, 0, true);
  const Tensor shares = sorted.softmax(0);
  const double* share = shares.const_data_ptr<double>();
  const int64_t most = sampling.top_k > 0 ? std::min(sampling.top_k, shares.size(0)) : shares.size(0);
  int64_t kept = 0;
  double total = 0;
  while (kept < most && (kept == 0 || (total < sampling.top_p && share[kept] > 0))) total += share[kept++];
  double left = draw * total;
  int64_t chosen = 0;
  while (chosen + 1 < kept && left >= share[chosen]) left -= share[chosen++];
  return order.const_data_ptr<int64_t>()[chosen];
}

std::vector<std::vector<int64_t>> generate(MultimodalModel& model, const ModelBatch& prompts,
                                           const GenerateOptions& options) {
  const Segments& text = prompts.text.at("");
  LOOM_CHECK(prompts.loss_rows.size(0) == text.count(), "one last row per prompt is needed");
  int64_t longest = 0;
  for (int64_t s = 0; s < text.count(); ++s) longest = std::max(longest, text.length(s));
  std::vector<std::vector<int64_t>> out(text.count());
  if (text.count() == 0 || options.max_new_tokens <= 0) return out;
  const std::vector<int64_t>& ends = options.end_tokens;

  KvCache cache(text.count(), longest + options.max_new_tokens);
  std::vector<int64_t> live(text.count());  // which output each sequence of the cache writes to
  std::vector<uint64_t> keys;               // of the same sequences
  for (size_t s = 0; s < live.size(); ++s) {
    live[s] = static_cast<int64_t>(s);
    keys.push_back(text.keys[s].sample);
  }
  Tensor logits = model.logits(prompts, cache);
  for (int64_t n = 0; n < options.max_new_tokens; ++n) {
    const std::vector<int64_t> picked = pick_tokens(logits, keys, n, options.sampling);
    std::vector<int64_t> tokens, kept, still;
    std::vector<uint64_t> still_keys;
    for (size_t s = 0; s < live.size(); ++s) {
      const int64_t token = picked[s];
      if (std::find(ends.begin(), ends.end(), token) != ends.end()) continue;
      out[live[s]].push_back(token);
      if (options.on_token && !options.on_token(live[s], token)) continue;
      tokens.push_back(token);
      kept.push_back(static_cast<int64_t>(s));
      still.push_back(live[s]);
      still_keys.push_back(keys[s]);
    }
    if (tokens.empty() || n + 1 == options.max_new_tokens) break;
    if (kept.size() < live.size()) cache.select(kept);
    live = std::move(still);
    keys = std::move(still_keys);
    logits = model.logits(next_rows(tokens, cache), cache);
  }
  return out;
}

}  // namespace loom
