#include "pipelines/passes.h"

#include <algorithm>

#include "core/base/signal.h"
#include "core/data/batch_builder.h"

namespace loom {
namespace {

constexpr int64_t kCacheBudgets = 8;

// Takes samples as long as `fits` says so of (samples, tokens, longest) with the next one.
template <class Fits>
std::vector<Pass> split_while(const std::vector<int64_t>& tokens, const Fits& fits) {
  std::vector<Pass> out;
  int64_t sum = 0, longest = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += tokens[i];
    longest = std::max(longest, tokens[i]);
    if (out.empty() || !fits(static_cast<int64_t>(i - out.back().first) + 1, sum, longest)) {
      out.emplace_back(i, i);
      sum = longest = tokens[i];
    }
    out.back().second = i + 1;
  }
  return out;
}

}  // namespace

std::vector<Pass> split_passes(const std::vector<int64_t>& tokens, int64_t budget) {
  return split_while(tokens, [&](int64_t, int64_t sum, int64_t) { return sum <= budget; });
}

std::vector<Pass> split_prompts(const std::vector<int64_t>& tokens, int64_t max_new_tokens, int64_t budget) {
  return split_while(tokens, [&](int64_t samples, int64_t sum, int64_t longest) {
    return sum <= budget && samples * (longest + max_new_tokens) <= kCacheBudgets * budget;
  });
}

std::vector<std::vector<int64_t>> generate_in_passes(MultimodalModel& model,
                                                     const std::vector<const PreparedSample*>& samples,
                                                     const GenerateOptions& options, int64_t budget) {
  std::vector<int64_t> tokens;
  for (const PreparedSample* sample : samples) tokens.push_back(answer_begin(*sample));
  const BatchModalities modalities = batch_modalities(model);
  std::vector<std::vector<int64_t>> out(samples.size());
  for (const auto& [begin, end] : split_prompts(tokens, options.max_new_tokens, budget)) {
    const std::vector<const PreparedSample*> some(samples.begin() + static_cast<std::ptrdiff_t>(begin),
                                                  samples.begin() + static_cast<std::ptrdiff_t>(end));
    GenerateOptions own = options;
    if (options.on_token) {
      own.on_token = [&, first = static_cast<int64_t>(begin)](int64_t sequence, int64_t token) {
        return options.on_token(first + sequence, token);
      };
    }
    std::vector<std::vector<int64_t>> answers = generate(model, build_prompt_batch(some, modalities), own);
    std::move(answers.begin(), answers.end(), out.begin() + static_cast<std::ptrdiff_t>(begin));
    if (stop_requested()) break;
  }
  return out;
}

}  // namespace loom
