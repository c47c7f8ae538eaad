#pragma once
// Loaded steps of made-up samples for the tiny captioner: what a trainer is given.
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/data/loader.h"
#include "tests/support/tiny_model.h"

namespace loom::test {

// Samples with one picture of `rows` rows, then `text` tokens of which the last `supervised` are targets.
inline PreparedSample sample_of(uint64_t key, int64_t rows, int64_t text, int64_t supervised) {
  PreparedSample s;
  const Philox random({1, Purpose::sample, 0, 0, key});
  s.verdict.sample = key;
  s.verdict.name = concat("sample ", key);
  s.verdict.tokens = rows + text;
  s.verdict.supervised = supervised;
  s.verdict.items = {{"image", {rows, rows, static_cast<double>(rows), {}}, 0, rows}};
  for (int64_t row = 1; row < rows; ++row) s.verdict.items[0].cuts.push_back(row);
  s.tokens.assign(rows, 0);
  s.supervised.assign(rows, 0);
  for (int64_t t = 0; t < text; ++t) {
    s.tokens.push_back(static_cast<int64_t>(random.below(kVocab, t)));
    s.supervised.push_back(t >= text - supervised ? 1 : 0);
  }
  s.media = {at::empty({rows, kMediaWidth}, at::kFloat)};
  for (int64_t i = 0; i < s.media[0].numel(); ++i)
    s.media[0].data_ptr<float>()[i] = static_cast<float>(random.normal(100 + i));
  return s;
}

inline LoadedStep step_of(int64_t step, std::vector<PreparedSample> samples, int64_t budget,
                          const WorldLayout& layout = {}) {
  LoadedStep out;
  std::vector<Verdict> verdicts;
  for (const PreparedSample& s : samples) verdicts.push_back(s.verdict);
  out.plan = make_step_plan(step, std::move(verdicts), budget, 0, layout);
  out.samples = std::move(samples);
  return out;
}

inline std::vector<PreparedSample> uneven_samples() {
  return {sample_of(1, 3, 5, 4), sample_of(2, 2, 6, 1), sample_of(3, 4, 4, 3), sample_of(4, 1, 7, 2)};
}

}  // namespace loom::test
