#pragma once
// Held-out evaluation: greedy answers against the truth, and the loss of the truth. Samples are taken in file order, so
// a smaller number is a prefix of a larger one, and run in passes of at most data.budget tokens. The answer of a sample
// is its last run of supervised tokens; answers before it are given.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/config/config_value.h"
#include "core/data/preparer.h"
#include "core/data/source.h"
#include "core/data/tokenizer.h"
#include "core/model/multimodal_model.h"

namespace loom {

struct EvalSample {
  std::string name, prompt, truth, output;  // prompt: the text before the answer, without special tokens
  Tensor picture;                           // uint8 [height, width, channels]; undefined without one
  bool correct = false;
};

struct EvalOptions {
  int64_t samples = 0;  // 0 = all
  int64_t batch = 250;
  int64_t max_new_tokens = 64;
  bool generate = true;        // exact match; otherwise only the loss
  bool swapped = false;        // each sample is shown the media of another one: what does the model owe to the picture?
  int64_t show = 0;            // answers to return with their media
  ThreadPool* pool = nullptr;  // that prepares samples ahead; null: prepared in turn
  std::function<void(const EvalSample&)> on_answer{};  // told every sample, without its picture
};

// From a validated `eval` section of a recipe.
EvalOptions read_eval_options(const ConfigValue& eval);

struct EvalResult {
  int64_t samples = 0;
  int64_t exact = 0;
  double loss = 0;                        // mean over supervised tokens; 0 when swapped
  int64_t supervised = 0;                 // tokens
  std::optional<int64_t> correct_tokens;  // of them the model's first choice; nothing when the backbone does not say
  int64_t skipped = 0;                    // could not be used, or nothing in them is supervised
  std::string first_skip;                 // "train.0#7: no such file ..."; of those
  double seconds = 0;
  std::vector<EvalSample> shown;
  std::optional<double> token_accuracy() const {
    if (!correct_tokens.has_value() || supervised == 0) return std::nullopt;
    return static_cast<double>(*correct_tokens) / static_cast<double>(supervised);
  }
  double exact_match() const { return samples > 0 ? static_cast<double>(exact) / static_cast<double>(samples) : 0; }
};

// `progress` is told how many samples are done, and of how many. Stops early when a stop is requested.
EvalResult evaluate(MultimodalModel& model, const Tokenizer& tokenizer, const Preparer& preparer,
                    const std::vector<std::shared_ptr<Source>>& sources, const EvalOptions& options,
                    const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace loom
